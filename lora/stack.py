"""The changes of all adapters to one layer, stacked so that every row of a batch takes its own. Executor thread only.

A row's change is (x a) b with `a` (inputs, rank) and `b` (rank, outputs) in float32, the factor already in `b`.
Rows of several adapters go through one gathered matrix product over the stack (as in Punica, Chen et al. 2023,
arXiv:2310.18547); ranks are padded with zeros to the largest. DoRA's rescaling of the base output is a gain.
"""

from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from .modules import dense_weight, float_type, kind_of_module
from .rows import Members, Seats
from .tensors import Change, replaced


@dataclass(slots=True)
class Share:
    """What one adapter does to one layer. gain: by output (by id for an embedding); twin: the layer with replaced
    parameters."""

    a: mx.array | None = None
    b: mx.array | None = None
    gain: mx.array | None = None
    bias: mx.array | None = None
    twin: nn.Module | None = None

    def arrays(self) -> list[mx.array]:
        own = [array for array in (self.a, self.b, self.gain, self.bias) if array is not None]
        return own + ([value for value in self.twin.values() if isinstance(value, mx.array)] if self.twin else [])


def share_of(module: nn.Module, change: Change) -> Share:
    """Fold factor and gain into the pair. All arrays are concrete."""
    twin = replaced(module, Change(wholes=_in_own_type(module, change.wholes))) if change.wholes else None
    low = change.low
    if low is None:
        share = Share(twin=twin)
        mx.eval(share.arrays())
        return share
    a, b, gain = low.a, low.factor * low.b, None
    bias = None if low.bias is None else low.factor * low.bias
    if low.magnitude is not None:
        kind = kind_of_module(module)
        norm = mx.linalg.norm(dense_weight(twin or module) + low.delta(kind), axis=-1)
        gain = low.magnitude / norm
        if kind == "embedding":
            a = gain[:, None] * a
        else:
            b = b * gain
    share = Share(a, b, gain, bias, twin)
    mx.eval(share.arrays())
    return share


def _in_own_type(module: nn.Module, wholes: dict[str, mx.array]) -> dict[str, mx.array]:
    """Replaced parameters in the layer's float type: one float32 norm would turn the whole residual stream to it."""
    dense = "scales" in module and "scales" not in wholes
    typed = {}
    for name, value in wholes.items():
        wanted = float_type(module) if dense and name == "weight" else module[name].dtype
        typed[name] = value.astype(wanted) if mx.issubdtype(value.dtype, mx.floating) else value
    return typed


class Stack:
    """The shares of a layer's members. Rebuilt, and concrete, whenever one comes or goes."""

    def __init__(self) -> None:
        self.shares: dict[int, Share] = {}
        self.members: Members = ()
        self.low: Members = ()
        self.twins: dict[int, nn.Module] = {}
        self.a: mx.array | None = None
        self.b: mx.array | None = None
        self.gain: mx.array | None = None
        self.bias: mx.array | None = None

    def add(self, slot: int, share: Share) -> None:
        self.shares[slot] = share
        self._build()

    def remove(self, slot: int) -> None:
        del self.shares[slot]
        self._build()

    def _build(self) -> None:
        self.members = tuple(self.shares)
        self.twins = {slot: share.twin for slot, share in self.shares.items() if share.twin is not None}
        low = {slot: share for slot, share in self.shares.items() if share.a is not None}
        self.low = tuple(low)
        pairs = [(share.a, share.b) for share in low.values() if share.a is not None and share.b is not None]
        rank = max((a.shape[-1] for a, _ in pairs), default=0)
        self.a = mx.stack([_widen(a, -1, rank) for a, _ in pairs]) if pairs else None
        self.b = mx.stack([_widen(b, -2, rank) for _, b in pairs]) if pairs else None
        self.gain = _vectors([share.gain for share in low.values()], 1.0)
        self.bias = _vectors([share.bias for share in low.values()], 0.0)
        mx.eval([array for array in (self.a, self.b, self.gain, self.bias) if array is not None])
        for share, place in zip(low.values(), range(len(low)), strict=True):
            self._lend(share, place)

    def _lend(self, share: Share, place: int) -> None:
        """The stack is the only copy: the shares keep slices of it, which MLX evaluates without copying."""
        assert self.a is not None and self.b is not None and share.a is not None and share.b is not None
        share.a, share.b = self.a[place][..., : share.a.shape[-1]], self.b[place][..., : share.b.shape[-2], :]
        mx.eval(share.a, share.b)


def _widen(array: mx.array, axis: int, rank: int) -> mx.array:
    pads = [(0, 0)] * array.ndim
    pads[axis] = (0, rank - array.shape[axis])
    return mx.pad(array, pads)


def _vectors(vectors: list[mx.array | None], filler: float) -> mx.array | None:
    """A stack of vectors where some adapters have none; None if all have none."""
    known = next((vector for vector in vectors if vector is not None), None)
    if known is None:
        return None
    return mx.stack([mx.full(known.shape, filler) if vector is None else vector for vector in vectors])


def through(x: mx.array, stack: mx.array, seats: Seats) -> mx.array:
    """Each row of x (rows, tokens, in) through its own matrix of the stack (places, in, out)."""
    if seats.single is not None:
        return x @ stack[seats.single]
    return mx.gather_mm(x, stack, rhs_indices=seats.index)


def pick(stack: mx.array, seats: Seats, ndim: int) -> mx.array:
    """Each row's own vector of the stack (places, n), shaped to multiply an array of `ndim` axes."""
    if seats.single is not None:
        return stack[seats.single]
    vectors = stack[seats.index]
    return vectors.reshape(vectors.shape[0], *[1] * (ndim - 2), vectors.shape[-1])
