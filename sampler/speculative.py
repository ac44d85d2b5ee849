"""Accepting a draft without changing the distribution: the accept test and the residual. Executor thread only.

Leviathan, Kalman & Matias, "Fast Inference from Transformers via Speculative Decoding" (ICML 2023) and Chen et al.,
"Accelerating Large Language Model Decoding with Speculative Sampling" (2023): a token x drawn from q is kept with
probability min(1, p(x) / q(x)); at the first refusal one token is drawn from max(p - q, 0), renormalised. What comes
out has exactly the distribution p. A draft that did not come from a distribution (prompt lookup, a greedy draft
model) is the case q(x) = 1: it is kept with probability p(x), and the residual is p without x.

p is what the sampler would draw from, after every filter: `target` computes it. Pure functions of arrays.
"""

from __future__ import annotations

import mlx.core as mx

from . import filters, order
from .noise import gumbel, open_interval, random_words
from .plan import Group
from .rows import Rows


def target(scores: mx.array, rows: Rows) -> mx.array:
    """float32[B, V] scores (bias, penalties, mask applied) -> float32[B, V]: what each row draws from; sums to 1."""
    parts = [_target(scores if group.at is None else scores[group.at], group) for group in rows.groups]
    return parts[0] if rows.back is None else mx.concatenate(parts)[rows.back]


def accept(p: mx.array, q: mx.array | None, draft: mx.array, uniform: mx.array) -> mx.array:
    """float32[..., V], float32[..., V] or None, integer[...], float32[...] in (0, 1) -> bool[...].

    q None: the draft is deterministic. A token that q could not have drawn (q(x) = 0) is kept only if p(x) > 0.
    """
    likely = mx.take_along_axis(p, draft[..., None], axis=-1)[..., 0]
    if q is None:
        return uniform < likely
    return uniform * mx.take_along_axis(q, draft[..., None], axis=-1)[..., 0] < likely


def residual(p: mx.array, q: mx.array) -> mx.array:
    """float32[..., V] twice -> float32[..., V]: max(p - q, 0), renormalised; p itself where nothing is left."""
    return _normalised(mx.maximum(p - q, 0.0), p)


def residual_without(p: mx.array, draft: mx.array) -> mx.array:
    """float32[..., V], integer[...] -> float32[..., V]: p without the refused draft, renormalised."""
    return _normalised(mx.where(mx.arange(p.shape[-1]) == draft[..., None], 0.0, p), p)


def verify(
    p: mx.array, q: mx.array | None, draft: mx.array, accept_keys: mx.array, residual_keys: mx.array
) -> tuple[mx.array, mx.array]:
    """Judge T drafted tokens of each row and draw the one that follows the kept ones.

    p: float32[B, T + 1, V], the target after 0..T drafted tokens; q: float32[B, T, V], or None for a deterministic
    draft; draft: integer[B, T]; accept_keys, residual_keys: uint32[B, 2], of unlike purposes (see `keys`).
    Returns int32[B], how many were kept (0..T), and uint32[B], the token after them.
    """
    drafted = draft.shape[-1]
    uniform = open_interval(random_words(accept_keys, drafted))
    kept = mx.cumprod(accept(p[:, :-1], q, draft, uniform).astype(mx.int32), axis=-1)
    count = mx.sum(kept, axis=-1)
    refused = residual_without(p[:, :-1], draft) if q is None else residual(p[:, :-1], q)
    after = mx.concatenate([refused, p[:, -1:]], axis=1)
    chosen = mx.take_along_axis(after, count[:, None, None], axis=1)[:, 0]
    noise = gumbel(open_interval(random_words(residual_keys, p.shape[-1])))
    return count, mx.argmax(mx.log2(chosen) + noise, axis=-1)


def _target(scores: mx.array, group: Group) -> mx.array:
    width = scores.shape[-1]
    ids, best = order.best(scores)
    if group.kind == "greedy":
        return (mx.arange(width) == ids).astype(mx.float32)
    ids = order.top(scores, width)
    bits = mx.take_along_axis(filters.heat(scores, best, group), ids, axis=-1)
    bits = filters.leading(bits, group)
    mass = mx.power(2.0, filters.min_p(bits, bits, group))
    return mx.put_along_axis(mx.zeros_like(scores), ids, mass / mx.sum(mass, axis=-1, keepdims=True), axis=-1)


def _normalised(mass: mx.array, otherwise: mx.array) -> mx.array:
    total = mx.sum(mass, axis=-1, keepdims=True)
    return mx.where(total > 0, mass / mx.maximum(total, 1e-30), otherwise)
