"""Log-probabilities under the model's own distribution: before bias, penalties, temperature and masks.

Natural logarithms, float32, always finite: what is impossible reads -9999. Runs on the executor thread only.
"""

from __future__ import annotations

import mlx.core as mx

from . import order

IMPOSSIBLE = -9999.0


def of_drawn(logits: mx.array, ids: mx.array, count: int) -> tuple[mx.array, mx.array | None, mx.array | None]:
    """float32[B, V], uint32[B] -> own float32[B], then uint32[B, K] and float32[B, K] of the K best, in order."""
    total = log_total(logits)
    own = mx.take_along_axis(logits, ids[:, None], axis=-1) - total
    if not count:
        return _finite(own)[:, 0], None, None
    best = order.top(logits, count)
    return _finite(own)[:, 0], best, _finite(mx.take_along_axis(logits, best, axis=-1) - total)


def log_total(logits: mx.array) -> mx.array:
    """float32[B, V] -> float32[B, 1]: log of the summed exponentials."""
    best = mx.max(logits, axis=-1, keepdims=True)
    # Powers of two are two and a half times as fast as mx.exp on the CPU, and as exact here.
    bits = (logits - best) * 1.4426950408889634
    return best + mx.log(mx.sum(mx.power(2.0, bits), axis=-1, keepdims=True))


def _finite(logprobs: mx.array) -> mx.array:
    # The comparison is false for NaN, which `maximum` would let through.
    return mx.where(logprobs > IMPOSSIBLE, mx.minimum(logprobs, 0.0), IMPOSSIBLE)
