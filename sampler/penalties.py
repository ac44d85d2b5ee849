"""Bias and penalties: what is added to logits before anything else. Runs on the executor thread only.

Order within: bias, repetition, then presence and frequency. Presence and frequency follow OpenAI's formula and
count generated tokens only; repetition follows CTRL (Keskar et al. 2019) with the sign rule that a negative logit
is multiplied and any other divided, over prompt and generated tokens. There is no window: the whole history counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from .params import SamplingParams


class Bias:
    """The logit biases of a batch as one sparse addition."""

    def __init__(self, rows: Sequence[SamplingParams]) -> None:
        entries = [(at, id, bias) for at, row in enumerate(rows) for id, bias in row.logit_bias]
        self.empty = not entries
        if entries:
            at, ids, bias = zip(*entries, strict=True)
            self._at, self._ids = mx.array(at, dtype=mx.int32), mx.array(ids, dtype=mx.int32)
            self._bias = mx.array(bias, dtype=mx.float32)

    def add(self, logits: mx.array) -> mx.array:
        """float32[B, V] -> float32[B, V]."""
        return logits if self.empty else logits.at[self._at, self._ids].add(self._bias)


class History:
    """What each row has seen, for the rows that pay penalties. Lives on the device; ids are never read back.

    `at` are the batch positions of those rows; counts: float32[P, V], how often each token was generated;
    prompt: bool[P, V], which tokens the prompt holds.
    """

    def __init__(self, at: Sequence[int], rows: Sequence[SamplingParams], counts: mx.array, prompt: mx.array):
        self.at, self.counts, self.prompt = tuple(at), counts, prompt
        self._at = mx.array(self.at, dtype=mx.int32)
        self._repetition = _column([row.repetition_penalty for row in rows])
        self._presence = _column([row.presence_penalty for row in rows])
        self._frequency = _column([row.frequency_penalty for row in rows])
        self._repeats = any(row.repetition_penalty != 1 for row in rows)
        self._additive = any(row.presence_penalty or row.frequency_penalty for row in rows)

    def record(self, ids: mx.array) -> None:
        """uint32[B]: count one more token of every row, without waiting for it."""
        chosen = ids[self._at].astype(mx.int32)
        self.counts = self.counts.at[mx.arange(len(self.at)), chosen].add(1.0)

    def penalise(self, logits: mx.array) -> mx.array:
        """float32[B, V] -> float32[B, V], the rows at `at` changed."""
        whole = len(self.at) == logits.shape[0]
        scores = logits if whole else logits[self._at]
        if self._repeats:
            scores = repeated(scores, seen(self.prompt, self.counts), self._repetition)
        if self._additive:
            scores = scores - self._frequency * self.counts - self._presence * (self.counts > 0)
        if whole:
            return scores
        changed = logits[:]
        changed[self._at] = scores
        return changed


def penalised(params: SamplingParams) -> bool:
    """Whether a row needs a history at all."""
    return bool(params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1)


def seen(prompt: mx.array, counts: mx.array) -> mx.array:
    """bool[P, V]: the tokens that the repetition penalty falls on."""
    return prompt | (counts > 0)


def repeated(scores: mx.array, seen: mx.array, penalty: mx.array) -> mx.array:
    """float32[P, V], bool[P, V], float32[P, 1]: make seen tokens less likely, whatever the sign of their score."""
    return mx.where(seen, mx.where(scores < 0, scores * penalty, scores / penalty), scores)


def token_counts(ids: Sequence[int], vocab_size: int) -> mx.array:
    """float32[V]: how often each id occurs. The ids were validated at the door; NumPy raises if one was not."""
    return mx.array(np.bincount(np.asarray(ids, dtype=np.int64), minlength=vocab_size)[:vocab_size], mx.float32)


def _column(values: list[float]) -> mx.array:
    return mx.array(values, dtype=mx.float32)[:, None]
