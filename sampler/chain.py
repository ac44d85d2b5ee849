"""One vectorised draw a step for all rows of a batch. Builds a lazy graph and evaluates nothing.

Order: bias and penalties, mask, temperature, top_k, top_p, min_p, Gumbel-max; float32 throughout, whatever the
model's type. Runs on the executor thread only.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from . import filters
from .logprobs import of_drawn
from .masks import Masks
from .rows import Rows

DRAW = {"greedy": filters.greedy, "plain": filters.plain, "listed": filters.listed, "nucleus": filters.nucleus}


@dataclass(frozen=True, slots=True)
class Sampled:
    """What one step drew, lazily.

    ids: uint32[B], always inside the vocabulary. ok: bool[B], False where the row had no distribution to draw from
    (`fault_of` says why): its id means nothing. logprob: float32[B], 0 in rows that did not ask, or None when none
    did; top_ids, top_logprobs: uint32[B, K] and float32[B, K], the K most likely tokens, best first, or None.
    """

    ids: mx.array
    ok: mx.array
    logprob: mx.array | None = None
    top_ids: mx.array | None = None
    top_logprobs: mx.array | None = None

    def arrays(self) -> list[mx.array]:
        """Everything to evaluate before reading."""
        found = (self.ids, self.ok, self.logprob, self.top_ids, self.top_logprobs)
        return [array for array in found if array is not None]


def sample(logits: mx.array, rows: Rows, keys: mx.array, masks: Masks | mx.array | None = None) -> Sampled:
    """logits: [B, V] of any float type; keys: uint32[B, 2]; masks: grammar masks, or bool[B, V], True is allowed."""
    assert logits.shape == (len(rows), rows.vocab_size) and keys.shape == (len(rows), 2)
    raw = logits.astype(mx.float32)
    scores = adjusted(raw, rows)
    if masks is not None:
        scores = (masks if isinstance(masks, Masks) else Masks(masks)).apply(scores)
    ids, best = draw(scores, rows, keys)
    return Sampled(ids, mx.abs(best) < mx.inf, *_logprobs(raw, ids, rows))


def adjusted(raw: mx.array, rows: Rows) -> mx.array:
    """float32[B, V] -> float32[B, V]: with bias and penalties."""
    scores = rows.bias.add(raw)
    return scores if rows.history is None else rows.history.penalise(scores)


def draw(scores: mx.array, rows: Rows, keys: mx.array) -> tuple[mx.array, mx.array]:
    """float32[B, V], uint32[B, 2] -> uint32[B] ids, float32[B] best scores: one call a kind of row present."""
    parts = []
    for group in rows.groups:
        own = (scores, keys) if group.at is None else (scores[group.at], keys[group.at])
        parts.append(DRAW[group.kind](*own, group))
    if rows.back is None:
        return parts[0]
    ids, best = (mx.concatenate(list(column))[rows.back] for column in zip(*parts, strict=True))
    return ids, best


def fault_of(logits: mx.array, masked: bool = False) -> str:
    """Why a row with `ok` False could not be drawn from. logits: [V]. Reads the device: only for failed rows."""
    row = logits.astype(mx.float32)
    if mx.any(mx.isnan(row)).item():
        return "the model's logits are not numbers (NaN)"
    if mx.any(row == mx.inf).item():
        return "the model's logits are infinite"
    if mx.all(row == -mx.inf).item():
        return "the model gives every token probability zero"
    return "the grammar allows no token here" if masked else "no token is left to draw from"


def _logprobs(raw: mx.array, ids: mx.array, rows: Rows) -> tuple[mx.array | None, ...]:
    if not rows.asking:
        return None, None, None
    if len(rows.asking) == len(rows):
        return of_drawn(raw, ids, rows.alternatives)
    at = mx.array(rows.asking, dtype=mx.int32)
    found = of_drawn(raw[at], ids[at], rows.alternatives)
    return tuple(None if part is None else _spread(part, at, len(rows)) for part in found)


def _spread(part: mx.array, at: mx.array, batch: int) -> mx.array:
    whole = mx.zeros((batch, *part.shape[1:]), dtype=part.dtype)
    whole[at] = part
    return whole
