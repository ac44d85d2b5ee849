"""How gates draw: the real chain, many rows in one call."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray
from soloist.sampler import chain
from soloist.sampler.params import SamplingParams
from soloist.sampler.rows import Rows, RowSpec


def draw(
    logits: NDArray[np.floating], params: Sequence[SamplingParams], choices: Sequence[int], draws: Sequence[int]
) -> NDArray[np.int64]:
    """logits [B, V], one of everything a row -> ids [B]."""
    specs = [RowSpec(own, choice) for own, choice in zip(params, choices, strict=True)]
    rows = Rows(logits.shape[-1], specs)
    sampled = chain.sample(mx.array(logits.astype(np.float32)), rows, rows.keys(draws))
    return np.array(sampled.ids, dtype=np.int64)
