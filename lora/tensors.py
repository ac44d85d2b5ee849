"""An adapter's tensors in memory, in one orientation and in float32. Runs on the executor thread only."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn

from .dense import dense_twin
from .errors import MisfitError, listing
from .fit import Fitted
from .modules import dense_weight, kind_of_module
from .parts import Adapter, Pair


@dataclass(slots=True)
class LowRank:
    """a: (inputs, rank), b: (rank, outputs), or with a leading experts axis; float32, without the factor.
    magnitude: (outputs,), for an embedding (ids,). bias: (outputs,), without the factor."""

    a: mx.array
    b: mx.array
    factor: float
    magnitude: mx.array | None = None
    bias: mx.array | None = None

    def delta(self, kind: str) -> mx.array:
        """factor * B A in the layout of the weight."""
        product = self.factor * (self.a @ self.b)
        return product if kind == "embedding" else product.swapaxes(-1, -2)


@dataclass(slots=True)
class Change:
    """All that an adapter does to one module; wholes: parameter name -> the array that replaces it."""

    low: LowRank | None = None
    wholes: dict[str, mx.array] = field(default_factory=dict)


def load_changes(adapter: Adapter, fitted: Fitted) -> dict[str, Change]:
    """Read every tensor; all arrays are concrete. Raises MisfitError for a tensor that is not finite."""
    raw = cast(dict[str, mx.array], mx.load(str(adapter.files.weights)))
    changes: dict[str, Change] = {}
    for pair in fitted.pairs:
        changes.setdefault(pair.module, Change()).low = _low_rank(pair, raw)
    for whole in fitted.wholes:
        changes.setdefault(whole.module, Change()).wholes[whole.parameter] = raw[whole.key]
    _check_finite(raw)
    for change in changes.values():
        low = change.low
        mx.eval(list(change.wholes.values()), [low.a, low.b, low.magnitude, low.bias] if low else [])
    return changes


def _check_finite(raw: dict[str, mx.array]) -> None:
    floats = {key: value for key, value in raw.items() if mx.issubdtype(value.dtype, mx.floating)}
    verdicts = {key: mx.isfinite(value.astype(mx.float32)).all() for key, value in floats.items()}
    mx.eval(verdicts)
    bad = [key for key, verdict in verdicts.items() if not verdict.item()]
    if bad:
        raise MisfitError(f"not a finite number in {listing(bad)}", bad)


def _low_rank(pair: Pair, raw: dict[str, mx.array]) -> LowRank:
    turn = pair.torch_layout or bool(pair.experts)
    return LowRank(
        _half(pair.a, raw, turn, stack=bool(pair.experts)),
        _half(pair.b, raw, turn, stack=bool(pair.experts)),
        pair.scale.factor,
        _vector(pair.magnitude, raw),
        _vector(pair.bias, raw),
    )


def _half(keys: tuple[str, ...], raw: dict[str, mx.array], turn: bool, stack: bool) -> mx.array:
    arrays = [raw[key].astype(mx.float32) for key in keys]
    array = mx.stack(arrays) if stack and arrays[0].ndim == 2 else arrays[0]
    return mx.contiguous(array.swapaxes(-1, -2)) if turn else array


def _vector(key: str | None, raw: dict[str, mx.array]) -> mx.array | None:
    return None if key is None else raw[key].astype(mx.float32).reshape(-1)


def target_weight(module: nn.Module, change: Change, read: Callable[[nn.Module], mx.array] = dense_weight) -> mx.array:
    """The weight that the trainer meant, float32: replaced if so asked, plus factor * B A, DoRA's rows rescaled."""
    weight = read(replaced(module, change)) if change.wholes else read(module)
    low = change.low
    if low is None:
        return weight
    weight = weight + low.delta(kind_of_module(module))
    if low.magnitude is not None:
        weight = weight * (low.magnitude / mx.linalg.norm(weight, axis=-1))[:, None]
    return weight


def replaced(module: nn.Module, change: Change) -> nn.Module:
    """A copy of a leaf module with the adapter's whole parameters; a dense weight makes a quantised one dense."""
    new = change.wholes.get("weight")
    if new is not None and "scales" in module and "scales" not in change.wholes:
        return dense_twin(module, new, {key: value for key, value in change.wholes.items() if key != "weight"})
    kind: Any = type(module)
    twin: nn.Module = kind.__new__(kind)
    twin.__dict__.update(module.__dict__)
    dict.update(twin, module)
    for name, value in change.wholes.items():
        twin[name] = value
    return twin
