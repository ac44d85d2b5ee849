"""Grammar masks: which tokens a row may draw at all. Runs on the executor thread only."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

WORD = 32


@dataclass(frozen=True, slots=True)
class Masks:
    """allowed: bool[M, V], or packed bits as (u)int32[M, ceil(V / 32)], lowest bit first; True or 1 is allowed.

    places: the M rows of the batch that have a mask; None when all have. Bits missing at the end forbid.
    """

    allowed: mx.array
    places: tuple[int, ...] | None = None

    def apply(self, scores: mx.array) -> mx.array:
        """float32[B, V] -> float32[B, V], -inf where a row may not go."""
        allowed = self.allowed if self.allowed.dtype == mx.bool_ else unpack(self.allowed, scores.shape[-1])
        if self.places is None:
            return mx.where(allowed, scores, -mx.inf)
        at = mx.array(self.places, dtype=mx.int32)
        masked = scores[:]
        masked[at] = mx.where(allowed, scores[at], -mx.inf)
        return masked


def unpack(words: mx.array, width: int) -> mx.array:
    """(u)int32[M, N] -> bool[M, width]."""
    bits = (words.view(mx.uint32)[:, :, None] >> mx.arange(WORD, dtype=mx.uint32)) & 1
    allowed = bits.reshape(words.shape[0], -1).astype(mx.bool_)[:, :width]
    if (missing := width - allowed.shape[-1]) > 0:
        allowed = mx.pad(allowed, [(0, 0), (0, missing)], constant_values=False)
    return allowed
