"""What a gate says: named checks with their figures, and the statistics that judge a sample against a target.

The bounds hold for any seed. Each statistical check fails a right sampler with probability under 1e-6, so that a run
of a few hundred checks fails by chance less than once in a thousand runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CHANCE = 1e-6
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Check:
    """One question with its answer. figures: what was measured, for the receipt."""

    name: str
    passed: bool
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Effort:
    """draws: how many a cell of a statistical gate. wide: the whole matrix instead of a few cells."""

    draws: int
    wide: bool
    seed: int


Gate = Callable[[Effort], list[Check]]


def follows(name: str, ids: NDArray[np.integer], target: Floats) -> Check:
    """Whether ids [N] look drawn from target [V]: chi-square, total variation, largest difference, and the support."""
    counts = np.bincount(ids, minlength=target.size).astype(np.float64)
    total = counts.sum()
    share = counts / total
    support = target > 0
    categories = int(support.sum())
    variation, largest = 0.5 * np.abs(share - target).sum(), np.abs(share - target).max()
    probability = chi_square(counts[support], target[support])
    slack = math.log(1 / CHANCE)
    variation_bound = 0.5 * math.sqrt(categories / total) + math.sqrt(slack / (2 * total))
    largest_bound = math.sqrt((slack + math.log(2 * categories)) / (2 * total))
    passed = (
        bool(counts[~support].sum() == 0)
        and probability > CHANCE
        and bool(variation <= variation_bound)
        and bool(largest <= largest_bound)
    )
    figures = {"draws": total, "chi_square_p": probability, "tv": float(variation), "linf": float(largest)}
    return Check(name, passed, figures)


def chi_square(counts: Floats, target: Floats) -> float:
    """The p-value, with outcomes expected fewer than five times thrown together."""
    expected = target * counts.sum()
    rare = expected < 5
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    if counts.size < 2:
        return 1.0
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, counts.size - 1))


def close(name: str, found: object, wanted: object, tolerance: float) -> Check:
    """Whether two arrays agree to an absolute tolerance."""
    difference = float(np.max(np.abs(np.asarray(found, np.float64) - np.asarray(wanted, np.float64)), initial=0.0))
    return Check(name, difference <= tolerance, {"difference": difference})
