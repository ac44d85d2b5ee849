"""How much of a trained change the served weights really carry. Runs on the executor thread only.

strength = <W' - W, D> / <D, D> and residual = |W' - W - D| / |D|, in float32, where W is the weight before the merge,
W' the one that is served after it, and D the change that the trainer meant: factor * B A for LoRA, the difference of
the weights for DoRA and replaced parameters. 1 and 0 are perfect; the historic doubled scale reads 2.
"""

import math
import statistics
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

THRESHOLD = 0.05


@dataclass(frozen=True, slots=True)
class ModuleStrength:
    """module: the name of the module, with the parameter if it is not its weight. strength, residual: None if the
    trained change is zero. factor: the trained one, None where there is no low-rank pair."""

    module: str
    strength: float | None
    residual: float | None
    factor: float | None
    kept_dense: bool = False

    @property
    def off(self) -> float:
        """How far the strength is from the trained one."""
        return 0.0 if self.strength is None else abs(self.strength - 1.0)


@dataclass(frozen=True, slots=True)
class StrengthReport:
    """The strengths of all parts of a merge. Plain Python: may cross the thread."""

    parts: tuple[ModuleStrength, ...]
    summary: str

    @property
    def measured(self) -> tuple[ModuleStrength, ...]:
        return tuple(part for part in self.parts if part.strength is not None)

    @property
    def median(self) -> float | None:
        values = [part.strength for part in self.measured if part.strength is not None]
        return statistics.median(values) if values else None

    @property
    def worst(self) -> ModuleStrength | None:
        return max(self.measured, key=lambda part: part.off, default=None)

    @property
    def effective_scale(self) -> float | None:
        """Median of strength * factor over the low-rank pairs: <W' - W, B A> / <B A, B A>."""
        values = [part.strength * part.factor for part in self.parts if part.strength is not None and part.factor]
        return statistics.median(values) if values else None

    @property
    def kept_dense(self) -> tuple[str, ...]:
        return tuple(part.module for part in self.parts if part.kept_dense)

    def beyond(self, threshold: float) -> tuple[ModuleStrength, ...]:
        """The parts whose strength is off by more than the threshold, the worst first."""
        return tuple(sorted((part for part in self.measured if part.off > threshold), key=lambda part: -part.off))


def measure(before: mx.array, after: mx.array, meant: mx.array) -> tuple[float | None, float | None]:
    """(strength, residual) of one weight: before W, after W', meant W + D; any float type, compared in float32."""
    trained = meant.astype(mx.float32) - before.astype(mx.float32)
    served = after.astype(mx.float32) - before.astype(mx.float32)
    square, overlap, rest = _sum(trained * trained), _sum(served * trained), _sum(mx.square(served - trained))
    if square == 0.0:
        return None, None
    return overlap / square, math.sqrt(rest / square)


def _sum(products: mx.array) -> float:
    """By rows in float32, the rows in float64: one float32 sum over a large embedding would stand still at 2**24."""
    return float(np.array(products.sum(axis=-1)).sum(dtype=np.float64))
