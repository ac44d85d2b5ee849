"""Foreign words: none from the real sampler, and the theoretical number when the interval is closed on purpose."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import mlx.core as mx
import numpy as np
from soloist.ops import foreign
from soloist.sampler import noise
from soloist.sampler.params import SamplingParams

from .drawing import draw
from .verdict import Check, Effort

# Alphabets of four scripts; a quarter of the vocabulary is at home in an English text.
LETTERS = ("a", "б", "中", "م")
COARSE_BITS = 17


def strangers(effort: Effort) -> list[Check]:
    """Draws at temperature 1 with no filters, from a model that never means a foreign word."""
    draws, width = 5 * effort.draws, 4096 if effort.wide else 512
    tokens = [LETTERS[id % 4] * (1 + id // 4 % 3) for id in range(width)]
    home = foreign.home_scripts("What is the capital of France?")
    strange = foreign.foreign_ids(tokens, home)
    real = foreign.tally(_draws(tokens, strange, draws, effort.seed), strange, width)
    checks = [
        Check("a quarter is at home", len(strange) == width * 3 // 4),
        Check("one draw in 221 at 151,936 tokens", round(1 / foreign.forced_rate(151_936)) == 221),
        Check("no foreign word", real.foreign == 0, {"draws": draws, "fault would give": real.expected()}),
    ]
    endpoints = {COARSE_BITS: coarsely_closed} | ({25: closed_at_one} if effort.wide else {})
    for bits, mapping in endpoints.items():
        with mock.patch.object(noise, "open_interval", mapping):
            broken = foreign.tally(_draws(tokens, strange, draws, effort.seed + 1), strange, width)
        figures = {"observed": broken.foreign, "theoretical": broken.expected(2.0**-bits)}
        checks.append(Check(f"an end point of 2^-{bits} gives its own rate", broken.fits(2.0**-bits), figures))
    return checks


def closed_at_one(words: mx.array) -> mx.array:
    """What a float division of 32-bit words makes: the last 128 words become exactly 1."""
    return mx.maximum(words.astype(mx.float32) * (1.0 / 2**32), 2.0**-24)


def coarsely_closed(words: mx.array) -> mx.array:
    """The same fault with an end point so likely that a short run measures its rate."""
    return mx.where(words >> (32 - COARSE_BITS) == 2**COARSE_BITS - 1, 1.0, _OPEN(words))


_OPEN: Callable[[mx.array], mx.array] = noise.open_interval


def _draws(tokens: list[str], strange: frozenset[int], draws: int, seed: int) -> list[int]:
    logits = np.array([-60.0 if id in strange else 0.0 for id in range(len(tokens))], dtype=np.float32)
    params, ids, chunk = SamplingParams(seed=seed), [], 5000
    for start in range(0, draws, chunk):
        steps = range(start, min(start + chunk, draws))
        count = len(steps)
        ids += draw(np.tile(logits, (count, 1)), [params] * count, [0] * count, steps).tolist()
    return ids
