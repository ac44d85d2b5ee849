"""The matrix of parameters that the composition gates walk, and the distribution that they draw from."""

from __future__ import annotations

import itertools

import numpy as np
from soloist.sampler.params import SamplingParams

TEMPERATURES, TOP_KS, TOP_PS, MIN_PS = (0.3, 1.0, 1.7), (0, 2, 40), (1.0, 0.9, 0.1), (0.0, 0.05, 0.5)

MATRIX = tuple(
    SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    for temperature, top_k, top_p, min_p in itertools.product(TEMPERATURES, TOP_KS, TOP_PS, MIN_PS)
)

# A cover of every value and kind of row, for runs that must be short.
NARROW = tuple(
    SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    for temperature, top_k, top_p, min_p in (
        (1.0, 0, 1.0, 0.0),
        (0.3, 0, 0.9, 0.0),
        (1.7, 0, 0.9, 0.05),
        (1.0, 2, 1.0, 0.0),
        (1.7, 40, 0.9, 0.0),
        (1.7, 0, 1.0, 0.5),
        (1.7, 40, 1.0, 0.05),
        (1.0, 0, 0.1, 0.0),
    )
)

# 48 tokens, so that top_k 40 cuts; the masses stay clear of every top_p, where float32 could cut elsewhere.
VOCABULARY = 48
LOGITS = np.random.default_rng(20).normal(0, 2.0, VOCABULARY).astype(np.float32)


def label(params: SamplingParams) -> str:
    return f"T={params.temperature:g} k={params.top_k} p={params.top_p:g} min_p={params.min_p:g}"
