"""Expert layers under adapters. Runs on the executor thread only.

A mixture may sort its tokens by expert, after which nobody knows which row a token came from. So rows of different
adapters go through the mixture in groups; inside a group all tokens share one slot, in whatever order they come.
"""

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from .layers import Adapted
from .rows import Rows


class Group:
    """The slot of the rows that run through one mixture right now; None outside of it."""

    def __init__(self) -> None:
        self.slot: int | None = None


class AdaptedExperts(Adapted):
    """SwitchLinear and QuantizedSwitchLinear inside a mixture."""

    def __init__(self, base: nn.Module, rows: Rows, name: str, group: Group) -> None:
        super().__init__(base, rows, name)
        self.group = group

    def __call__(self, x: mx.array, *rest: Any, **named: Any) -> mx.array:
        indices, *more = rest
        slot = self.group.slot
        if slot is None or slot not in self.stack.members:
            return self.base(x, *rest, **named)
        self.rows.note(self.name)
        stack, ordered = self.stack, bool(named.get("sorted_indices", more[0] if more else False))
        y = stack.twins.get(slot, self.base)(x, *rest, **named)
        if slot not in stack.low or stack.a is None or stack.b is None:
            return y
        place = stack.low.index(slot)
        half = mx.gather_mm(x.astype(mx.float32), stack.a[place], rhs_indices=indices, sorted_indices=ordered)
        change = mx.gather_mm(half, stack.b[place], rhs_indices=indices, sorted_indices=ordered)
        return (y.astype(mx.float32) + change).astype(y.dtype)


class AdaptedMixture(nn.Module):
    """SwitchGLU or SwitchMLP whose experts are adapted: x (rows, ..., dims), indices (rows, ..., chosen)."""

    def __init__(self, base: nn.Module, rows: Rows) -> None:
        super().__init__()
        self.base = base
        self.rows = rows
        self.group = Group()

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:
        selection = self.rows.current
        if selection is None:
            return self.base(x, indices)
        if len(selection.distinct) == 1:
            return self._run(selection.slots[0], x, indices)
        parts, order = [], []
        for slot in sorted(selection.distinct):
            rows = selection.rows_of(slot, x.shape[0])
            parts.append(self._run(slot, x[rows], indices[rows]))
            order.append(rows)
        back = mx.argsort(mx.concatenate(order))
        return mx.concatenate(parts)[back]

    def _run(self, slot: int, x: mx.array, indices: mx.array) -> mx.array:
        self.group.slot = slot
        try:
            return self.base(x, indices)
        finally:
            self.group.slot = None
