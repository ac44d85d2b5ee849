"""The draw itself, one function a kind of group: filters, then Gumbel-max. Runs on the executor thread only.

Each takes float32[G, V] scores (bias, penalties and mask applied) and uint32[G, 2] keys, and returns uint32[G] ids
and float32[G], the best score of each row, from which the caller tells rows that cannot be drawn from.

The filters see tokens in one order: most likely first, lower id first among equals. top_k keeps the first k;
top_p the shortest beginning whose mass, renormalised over what top_k left, reaches top_p (Holtzman et al. 2020; the
token that crosses is kept); min_p what weighs at least min_p times the best (Nguyen et al. 2024). Each keeps the best.
"""

from __future__ import annotations

import mlx.core as mx

from . import noise, order
from .plan import Group


def greedy(scores: mx.array, keys: mx.array, group: Group) -> tuple[mx.array, mx.array]:
    """The best token; no noise is made."""
    ids, best = order.best(scores)
    return ids[:, 0], best[:, 0]


def plain(scores: mx.array, keys: mx.array, group: Group) -> tuple[mx.array, mx.array]:
    """Temperature, min_p, draw."""
    best = mx.max(scores, axis=-1, keepdims=True)
    bits = heat(scores, best, group)
    ids, _ = order.best(min_p(bits, bits + noise.row_noise(keys, scores.shape[-1]), group))
    return ids[:, 0], best[:, 0]


def listed(scores: mx.array, keys: mx.array, group: Group) -> tuple[mx.array, mx.array]:
    """Temperature, top_k, top_p, min_p, draw, all on the k best tokens of each row."""
    best = mx.max(scores, axis=-1, keepdims=True)
    ids = order.top(scores, group.width)
    bits = heat(mx.take_along_axis(scores, ids, axis=-1), best, group)
    bits = leading(bits, group)
    drawn = mx.argmax(min_p(bits, bits + noise.token_noise(keys, ids), group), axis=-1, keepdims=True)
    return mx.take_along_axis(ids, drawn, axis=-1)[:, 0], best[:, 0]


def nucleus(scores: mx.array, keys: mx.array, group: Group) -> tuple[mx.array, mx.array]:
    """Temperature, top_p, min_p, draw, without sorting the vocabulary.

    Tokens in falling order of score + noise are a sample without replacement, and the first of them that lies in the
    nucleus is the very token that masking first would have drawn. So: take the leading W tokens, find by binary
    search how far down in likelihood the nucleus reaches among them (each probe sums the mass above one score), and
    draw the first member. W is chosen so that all W miss the nucleus less than once in 2**60 draws.
    """
    first, best = order.best(scores)
    bits = heat(scores, best, group)
    noisy = min_p(bits, bits + noise.row_noise(keys, scores.shape[-1]), group)
    ids = order.top(noisy, group.width)
    members = in_nucleus(bits, ids, group.top_p)
    leading = mx.argmax(members, axis=-1, keepdims=True)
    drawn = mx.take_along_axis(ids, leading, axis=-1)
    return mx.where(mx.any(members, axis=-1, keepdims=True), drawn, first)[:, 0], best[:, 0]


def in_nucleus(bits: mx.array, ids: mx.array, top_p: mx.array) -> mx.array:
    """float32[G, V], uint32[G, W], float32[G, 1] -> bool[G, W]: which of the ids the nucleus of each row holds."""
    mass = mx.power(2.0, bits)
    goal = top_p * mx.sum(mass, axis=-1, keepdims=True)
    found = mx.take_along_axis(bits, ids, axis=-1)
    steps = -mx.sort(-found, axis=-1)
    reach = mx.zeros((bits.shape[0], 1), dtype=mx.int32)
    edge, above = mx.full(reach.shape, mx.inf), mx.zeros(reach.shape)
    width = ids.shape[-1]
    probe = 1 << (width.bit_length() - 1)
    while probe:
        step = mx.take_along_axis(steps, mx.minimum(reach + probe, width) - 1, axis=-1)
        heavier = mx.sum(mx.where(bits > step, mass, 0), axis=-1, keepdims=True)
        inside = (heavier < goal) & (reach + probe <= width)
        reach = mx.where(inside, reach + probe, reach)
        edge, above = mx.where(inside, step, edge), mx.where(inside, heavier, above)
        probe >>= 1
    # Equals at the edge enter in order of id, as far as the mass allows.
    equal = (bits == edge).astype(mx.int32)
    earlier = mx.take_along_axis(mx.cumsum(equal, axis=-1) - equal, ids, axis=-1)
    at_edge = (found == edge) & (above + earlier * mx.power(2.0, edge) < goal)
    return ((found > edge) | at_edge) & (found > -mx.inf)


def leading(bits: mx.array, group: Group) -> mx.array:
    """float32[G, K] scores in order -> the same, -inf where top_k or then top_p drops a token."""
    rank = mx.arange(bits.shape[-1])
    bits = mx.where(rank < group.top_k, bits, -mx.inf)
    mass = mx.power(2.0, bits)
    inside = mx.cumsum(mass, axis=-1, inclusive=False) < group.top_p * mx.sum(mass, axis=-1, keepdims=True)
    return mx.where(inside | (rank == 0), bits, -mx.inf)


def heat(scores: mx.array, best: mx.array, group: Group) -> mx.array:
    """Scores over temperature, in bits below the best token's: float32, at most 0."""
    return (scores - best) * group.sharpness


def min_p(bits: mx.array, noisy: mx.array, group: Group) -> mx.array:
    """Noisy scores with -inf where a token weighs less than min_p times the best one."""
    return noisy if group.floor is None else mx.where(bits >= group.floor, noisy, -mx.inf)
