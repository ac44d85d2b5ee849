"""The deliberate breaks. Each puts one known fault back into the real code, and names the gate that must see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import mlx.core as mx
import numpy as np
from soloist.daemon import door
from soloist.sampler import chain, filters, keys, noise, order, params, penalties, plan, speculative

from .strangers import closed_at_one


@dataclass(frozen=True, slots=True)
class Mutant:
    """patches: (where, name, what to put there), given the real thing. gate: the one that must catch it."""

    name: str
    gate: str
    patches: tuple[tuple[Any, str, Callable[[Any], Any]], ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, make in self.patches:
                stack.enter_context(mock.patch.object(owner, name, make(getattr(owner, name))))
            yield


def _instead(value: Any) -> Callable[[Any], Any]:
    return lambda real: value


def _dice(change: Callable[[Any, Any, Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda real: lambda self, draws, purpose=keys.SAMPLE: change(real, self, draws, purpose)


def _paired(words: np.ndarray) -> np.ndarray:
    return words[np.arange(len(words)) & ~1]


def _neighbour_row(real: Any) -> Any:
    return lambda scores, best, group: real(scores, mx.roll(best, 1, axis=0), group)


def _neighbour_target(real: Any) -> Any:
    def leading(bits: mx.array, group: plan.Group) -> mx.array:
        shifted = replace(group, top_k=mx.roll(group.top_k, 1, axis=0), top_p=mx.roll(group.top_p, 1, axis=0))
        return real(bits, shifted)

    return leading


def _without_best(real: Any) -> Any:
    """`mass before + own <= top_p`: the crossing token is dropped, and with it, often, the only one."""

    def leading(bits: mx.array, group: plan.Group) -> mx.array:
        kept = real(bits, group)
        crossing = mx.argmin(mx.where(kept > -mx.inf, kept, mx.inf), axis=-1, keepdims=True)
        drop = (mx.arange(bits.shape[-1]) == crossing) & (group.top_p < 1)
        return mx.where(drop, -mx.inf, kept)

    return leading


def _nucleus_without_best(real: Any) -> Any:
    def in_nucleus(bits: mx.array, ids: mx.array, top_p: mx.array) -> mx.array:
        return real(bits, ids, top_p) & (mx.take_along_axis(bits, ids, axis=-1) < 0)

    return in_nucleus


def _leading_before_temperature(real: Any) -> Any:
    def leading(bits: mx.array, group: plan.Group) -> mx.array:
        return mx.where(real(bits * _temperature(group), group) > -mx.inf, bits, -mx.inf)

    return leading


def _min_p_before_temperature(real: Any) -> Any:
    return lambda bits, noisy, group: real(bits * _temperature(group), noisy, group)


def _temperature(group: plan.Group) -> mx.array:
    return math.log2(math.e) / group.sharpness


def _one_more(real: Any) -> Any:
    return lambda row, vocab_size: min(vocab_size, real(row, vocab_size) + (row.top_k > 0))


def _wrong_token(real: Any) -> Any:
    return lambda logits, ids, count: real(logits, order.best(logits)[0][:, 0], count)


def _prompt_counted(real: Any) -> Any:
    def penalise(self: penalties.History, logits: mx.array) -> mx.array:
        counts = self.counts
        self.counts = counts + self.prompt
        try:
            return real(self, logits)
        finally:
            self.counts = counts

    return penalise


def _from_global(real: Any) -> Any:
    def words(keys: mx.array, width: int) -> mx.array:
        return (mx.random.uniform(shape=(keys.shape[0], width)) * 2**32).astype(mx.uint32)

    return words


MUTANTS = (
    Mutant("temperature defaults to 0", "client", ((params, "DEFAULTS", _instead(params.SamplingParams(0.0))),)),
    Mutant("seed defaults to 0", "client", ((door, "fresh_seed", _instead(lambda: 0)),)),
    Mutant("seed drawn once per process", "client", ((door, "fresh_seed", _instead(lambda: 8731)),)),
    Mutant(
        "key reused for two draws", "independence",
        ((keys.Dice, "keys", _dice(lambda real, self, draws, use: real(self, [d // 2 for d in draws], use))),),
    ),
    Mutant(
        "key shared by two rows", "independence",
        ((keys.Dice, "keys", _dice(lambda real, self, draws, use: _paired(real(self, draws, use)))),),
    ),
    Mutant(
        "interval closed at 0", "noise",
        ((noise, "open_interval", _instead(lambda words: (words >> 8).astype(mx.float32) * 2.0**-24)),),
    ),
    Mutant("interval closed at 1", "noise", ((noise, "open_interval", _instead(closed_at_one)),)),
    Mutant(
        "noise in bfloat16", "noise",
        ((noise, "gumbel", lambda real: lambda uniform: real(uniform).astype(mx.bfloat16).astype(mx.float32)),),
    ),
    Mutant("statistics of the neighbouring row", "mixed", ((filters, "heat", _neighbour_row),)),
    Mutant("parameters of the neighbouring row", "mixed", ((filters, "leading", _neighbour_target),)),
    Mutant(
        "scores of the neighbouring column", "composition",
        ((filters, "heat", lambda real: lambda scores, best, group: real(mx.roll(scores, 1, axis=-1), best, group)),),
    ),
    Mutant(
        "top_p drops the best token", "composition",
        ((filters, "leading", _without_best), (filters, "in_nucleus", _nucleus_without_best)),
    ),
    Mutant("top_k off by one", "composition", ((plan, "_top_k", _one_more),)),
    Mutant("accept test inverted", "speculation", ((speculative, "accept", lambda real: lambda *own: ~real(*own)),)),
    Mutant(
        "residual dropped on refusal", "speculation",
        ((speculative, "residual", _instead(lambda p, q: p)),
         (speculative, "residual_without", _instead(lambda p, draft: p))),
    ),
    Mutant("residual not renormalised", "acceptance", ((speculative, "_normalised", _instead(lambda mass, _: mass)),)),
    Mutant("penalties count prompt tokens", "penalties", ((penalties.History, "penalise", _prompt_counted),)),
    Mutant("logprob of the wrong token", "logprobs", ((chain, "of_drawn", _wrong_token),)),
    Mutant(
        "filters before temperature", "composition",
        ((filters, "leading", _leading_before_temperature), (filters, "min_p", _min_p_before_temperature)),
    ),
    Mutant("dice of the global state", "global state", ((noise, "random_words", _from_global),)),
    Mutant(
        "repetition penalty divides negatives too", "penalties",
        ((penalties, "repeated", _instead(lambda scores, seen, penalty: mx.where(seen, scores / penalty, scores))),),
    ),
)  # fmt: skip
