"""Layers that add to every row of a batch the change of that row's own adapter. Runs on the executor thread only.

A batch without adapters takes the base layer's path untouched. Rows without an adapter get the base layer's very
bits, whatever their neighbours have: the sum is selected by row, not multiplied by zero.
"""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from .modules import kind_of_module
from .rows import Rows, Seats, Selection
from .stack import Stack, pick, through


class Adapted(nn.Module):
    """A layer and what the loaded adapters do to it; without a low-rank part it takes replaced parameters only."""

    def __init__(self, base: nn.Module, rows: Rows, name: str) -> None:
        super().__init__()
        self.base = base
        self.rows = rows
        self.name = name
        self.stack = Stack()

    def selection(self) -> Selection | None:
        """The rows' slots if any of them is a member of this layer."""
        current = self.rows.current
        if current is None or current.distinct.isdisjoint(self.stack.members):
            return None
        self.rows.note(self.name)
        return current

    def __call__(self, x: mx.array, *rest: Any, **named: Any) -> mx.array:
        selection = self.selection()
        if selection is None:
            return self.base(x, *rest, **named)
        return self.plain(selection, _call, x, *rest, **named)

    def plain(self, selection: Selection, call: Callable[..., mx.array], *inputs: Any, **named: Any) -> mx.array:
        """The layer without its low-rank part: each row through the base or, if its adapter has one, its twin."""
        count = inputs[0].shape[0]
        twins = {slot: twin for slot, twin in self.stack.twins.items() if slot in selection.distinct}
        if len(selection.distinct) == 1 and twins:
            return call(next(iter(twins.values())), *inputs, **named)
        y = call(self.base, *inputs, **named)
        for slot, twin in twins.items():
            rows = selection.rows_of(slot, count)
            own = [value[rows] if _by_row(value, count) else value for value in inputs]
            named_own = {key: value[rows] if _by_row(value, count) else value for key, value in named.items()}
            y[rows] = call(twin, *own, **named_own).astype(y.dtype)
        return y


class AdaptedLinear(Adapted):
    """Linear and QuantizedLinear: x (rows, ..., inputs) -> (rows, ..., outputs)."""

    def __call__(self, x: mx.array, *rest: Any, **named: Any) -> mx.array:
        selection = self.selection()
        if selection is None:
            return self.base(x)
        y = self.plain(selection, _call, x)
        seats = selection.seats(self.stack.low, x.shape[0])
        if seats is None:
            return y
        stack = self.stack
        assert stack.a is not None and stack.b is not None
        flat = x.astype(mx.float32).reshape(x.shape[0], -1, x.shape[-1])
        change = through(through(flat, stack.a, seats), stack.b, seats).reshape(y.shape)
        if stack.bias is not None:
            change = change + pick(stack.bias, seats, y.ndim)
        return _join(y, self._gained(y, seats) + change, seats)

    def _gained(self, y: mx.array, seats: Seats) -> mx.array:
        """DoRA rescales W x, not the bias. A replaced bias cannot meet it: the bank refuses that pairing."""
        wide = y.astype(mx.float32)
        if self.stack.gain is None:
            return wide
        gain = pick(self.stack.gain, seats, y.ndim)
        bias = self.base.get("bias")
        return wide * gain if bias is None else (wide - bias) * gain + bias


class AdaptedEmbedding(Adapted):
    """Embedding and QuantizedEmbedding: ids (rows, tokens) -> (rows, tokens, dims), and the tied output layer."""

    def __call__(self, x: mx.array, *rest: Any, **named: Any) -> mx.array:
        selection = self.selection()
        if selection is None:
            return self.base(x)
        y = self.plain(selection, _call, x)
        seats = selection.seats(self.stack.low, x.shape[0])
        if seats is None:
            return y
        stack = self.stack
        assert stack.a is not None and stack.b is not None
        place = seats.index.reshape(-1, *[1] * (x.ndim - 1))
        halves = stack.a[place, x]
        flat = halves.reshape(x.shape[0], -1, halves.shape[-1])
        change = through(flat, stack.b, seats).reshape(y.shape)
        wide = y.astype(mx.float32)
        if stack.gain is not None:
            wide = wide * stack.gain[place, x][..., None]
        return _join(y, wide + change, seats)

    def as_linear(self, x: mx.array) -> mx.array:
        """x (rows, tokens, dims) -> (rows, tokens, ids)."""
        selection = self.selection()
        if selection is None:
            return self.base.as_linear(x)
        y = self.plain(selection, _as_linear, x)
        seats = selection.seats(self.stack.low, x.shape[0])
        if seats is None:
            return y
        stack = self.stack
        assert stack.a is not None and stack.b is not None
        flat = x.astype(mx.float32).reshape(x.shape[0], -1, x.shape[-1])
        half = through(flat, stack.b.swapaxes(-1, -2), seats)
        change = through(half, stack.a.swapaxes(-1, -2), seats).reshape(y.shape)
        wide = y.astype(mx.float32)
        if stack.gain is not None:
            wide = wide * pick(stack.gain, seats, y.ndim)
        return _join(y, wide + change, seats)


def adapted(base: nn.Module, rows: Rows, name: str) -> Adapted:
    """The wrapper for this layer; experts have their own, in mixture.py."""
    cls = {"linear": AdaptedLinear, "embedding": AdaptedEmbedding}.get(kind_of_module(base), Adapted)
    return cls(base, rows, name)


def _call(module: nn.Module, *inputs: Any, **named: Any) -> mx.array:
    return module(*inputs, **named)


def _as_linear(module: nn.Module, x: mx.array) -> mx.array:
    return module.as_linear(x)


def _by_row(value: Any, count: int) -> bool:
    return isinstance(value, mx.array) and value.ndim > 0 and value.shape[0] == count


def _join(y: mx.array, changed: mx.array, seats: Seats) -> mx.array:
    """One rounding to the layer's type; rows without a member keep the base output as it is."""
    changed = changed.astype(y.dtype)
    if seats.active is None:
        return changed
    return mx.where(seats.active.reshape(-1, *[1] * (y.ndim - 1)), changed, y)
