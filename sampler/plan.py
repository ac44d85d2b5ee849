"""Which work a row needs, decided once from its own parameters. Runs on the executor thread only.

A row's group never depends on its neighbours, so neither does the token that it draws. The four kinds:

greedy   temperature 0: the best token.
plain    no top_k, no top_p: noise on the whole row.
listed   top_k (or a top_p that only the best token can pass): the k best tokens, and noise for those alone.
nucleus  top_p without top_k: draw first, test membership afterwards (see `filters.nucleus`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import mlx.core as mx
import numpy as np

from .params import SamplingParams

Kind = Literal["greedy", "plain", "listed", "nucleus"]

# Below this the scores of unequal tokens are so far apart that only the best has any weight in float32.
COLDEST = 1e-30
# A nucleus draw tries so many tokens that all of them miss the nucleus less than once in 2**60 draws.
MISS_BITS = 60


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one kind. places: their rows in the batch; `at` is the same as an array, or None for the whole batch.

    sharpness: float32[G, 1], log2(e) / temperature, so that scores are in bits. top_k: int32[G, 1], the vocabulary
    size when off. top_p: float32[G, 1], infinite when off, lest rounding cut the tail. floor: float32[G, 1],
    log2(min_p), or None when no row has a min_p. width: how many tokens a row of this group looks at (listed, nucleus).
    """

    kind: Kind
    places: tuple[int, ...]
    at: mx.array | None
    sharpness: mx.array
    top_k: mx.array
    top_p: mx.array
    floor: mx.array | None
    width: int


def plan(rows: Sequence[SamplingParams], vocab_size: int) -> tuple[Group, ...]:
    """The groups of a batch, each with at least one row; together they hold every row once."""
    kinds = [kind(row, vocab_size) for row in rows]
    groups = []
    for name in ("greedy", "plain", "listed", "nucleus"):
        places = tuple(place for place, found in enumerate(kinds) if found == name)
        if places:
            groups.append(_group(name, places, [rows[place] for place in places], len(rows), vocab_size))
    return tuple(groups)


def kind(row: SamplingParams, vocab_size: int) -> Kind:
    """The group of one row."""
    if row.greedy:
        return "greedy"
    if 0 < row.top_k < vocab_size or row.top_p * vocab_size <= 1:
        return "listed"
    return "nucleus" if np.float32(row.top_p) < 1 else "plain"


def _group(kind: Kind, places: tuple[int, ...], rows: list[SamplingParams], batch: int, vocab: int) -> Group:
    top_k = [_top_k(row, vocab) for row in rows]
    floors = [math.log2(row.min_p) if row.min_p else -math.inf for row in rows]
    width = max(top_k) if kind == "listed" else max(_trials(row.top_p, vocab) for row in rows)
    return Group(
        kind=kind,
        places=places,
        at=None if len(places) == batch else mx.array(places, dtype=mx.int32),
        sharpness=_column([math.log2(math.e) / max(row.temperature, COLDEST) for row in rows]),
        top_k=mx.array(top_k, dtype=mx.int32)[:, None],
        top_p=_column([row.top_p if np.float32(row.top_p) < 1 else math.inf for row in rows]),
        floor=_column(floors) if any(row.min_p for row in rows) else None,
        width=width,
    )


def _top_k(row: SamplingParams, vocab_size: int) -> int:
    if 0 < row.top_k < vocab_size:
        return row.top_k
    # The best token weighs at least 1 / V, so a smaller top_p keeps it alone.
    return 1 if row.top_p * vocab_size <= 1 else vocab_size


def _trials(top_p: float, vocab_size: int) -> int:
    """2**r - 1 tokens, of which none lies in a nucleus of this mass with probability under 2**-MISS_BITS."""
    if not 0 < top_p < 1:
        return 1
    needed = MISS_BITS * math.log(2) / -math.log1p(-top_p)
    return min(vocab_size, 2 ** math.ceil(math.log2(needed + 1)) - 1)


def _column(values: list[float]) -> mx.array:
    return mx.array(values, dtype=mx.float32)[:, None]
