"""What each row should draw from, in NumPy and float64, written without a look at the sampler's own arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from soloist.sampler.params import SamplingParams

Floats = NDArray[np.float64]


def adjusted(logits: Floats, params: SamplingParams, prompt: Sequence[int], generated: Sequence[int]) -> Floats:
    """[V] -> [V]: bias, then repetition (prompt and generated), then frequency and presence (generated)."""
    scores = np.array(logits, dtype=np.float64)
    for id, bias in params.logit_bias:
        scores[id] += bias
    for id in {*prompt, *generated}:
        scores[id] *= params.repetition_penalty if scores[id] < 0 else 1 / params.repetition_penalty
    for id in set(generated):
        scores[id] -= params.frequency_penalty * list(generated).count(id) + params.presence_penalty
    return scores


def distribution(scores: Floats, params: SamplingParams) -> Floats:
    """[V] adjusted scores -> [V] probabilities after temperature, top_k, top_p, min_p."""
    order = sorted(range(scores.size), key=lambda id: (-scores[id], id))
    if params.temperature == 0:
        return np.eye(scores.size)[order[0]]
    weight = np.exp((scores - scores.max()) / params.temperature)
    kept = order[: params.top_k] if 0 < params.top_k < scores.size else order
    total = weight[kept].sum()
    nucleus, mass = [], 0.0
    for id in kept:
        if params.top_p < 1 and nucleus and mass >= params.top_p * total:
            break
        nucleus.append(id)
        mass += weight[id]
    survivors = [id for id in nucleus if weight[id] >= params.min_p * weight[order[0]]]
    result = np.zeros(scores.size)
    result[survivors] = weight[survivors]
    return result / result.sum()


def log_softmax(logits: Floats) -> Floats:
    """[..., V] -> [..., V], natural logarithms."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result
