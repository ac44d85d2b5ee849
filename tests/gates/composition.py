"""The composed chain against the exact target: every cell of the matrix, alone and in a mixed batch of eight."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from soloist.sampler.params import SamplingParams

from . import oracle
from .cells import LOGITS, MATRIX, NARROW, label
from .drawing import draw
from .verdict import Check, Effort, follows

EIGHT = 8


def composition(effort: Effort) -> list[Check]:
    """One kind of row at a time: chi-square, total variation and L-infinity of each cell."""
    checks = []
    for number, cell in enumerate(MATRIX if effort.wide else NARROW):
        params = replace(cell, seed=effort.seed + number)
        ids = draw(np.tile(LOGITS, (effort.draws, 1)), [params] * effort.draws, [0] * effort.draws, range(effort.draws))
        checks.append(follows(label(cell), ids, oracle.distribution(LOGITS.astype(np.float64), cell)))
    return checks


def mixed(effort: Effort) -> list[Check]:
    """Batches of eight unlike rows, each with its own logits, so that whatever leaks between rows shows."""
    cells = MATRIX if effort.wide else NARROW
    checks = []
    for start in range(0, len(cells), EIGHT):
        eight = [replace(cells[(start + at) % len(cells)], seed=effort.seed) for at in range(EIGHT)]
        # Heights differ as well as shapes: a row's distribution does not change with them, a leak between rows does.
        logits = np.stack([np.roll(LOGITS, 5 * at + start) + 3 * at for at in range(EIGHT)])
        ids = _eight_rows(logits, eight, effort.draws)
        for at, params in enumerate(eight):
            target = oracle.distribution(logits[at].astype(np.float64), params)
            checks.append(follows(f"{label(params)} in row {at} of eight", ids[:, at], target))
        checks += _same_alone(logits, eight, ids)
    return checks


def independence(effort: Effort) -> list[Check]:
    """Two draws of one row, two choices of one seed, two rows of one batch: pairs must follow the product."""
    draws, params = effort.draws, SamplingParams(seed=effort.seed)
    target = oracle.distribution(LOGITS[:4].astype(np.float64) / 2, params)
    product = np.outer(target, target).reshape(-1)
    logits = np.tile(LOGITS[:4] / 2, (2 * draws, 1))
    indices, alternating = np.arange(2 * draws), np.tile([0, 1], draws)
    series = {
        "two draws of one row": draw(logits, [params] * 2 * draws, [0] * 2 * draws, indices),
        "two choices of one seed": draw(logits, [params] * 2 * draws, alternating, indices // 2),
        "two rows of one batch": draw(
            logits, [replace(params, seed=effort.seed + int(at)) for at in alternating], [0] * 2 * draws, indices // 2
        ),
    }
    return [follows(name, ids[::2] * 4 + ids[1::2], product) for name, ids in series.items()]


def _eight_rows(logits: NDArray[np.float32], eight: list[SamplingParams], draws: int) -> NDArray[np.int64]:
    """ids [draws, 8]: the batch of eight, `draws` times over, as one tall batch."""
    ids = draw(
        np.tile(logits, (draws, 1)), eight * draws, list(range(EIGHT)) * draws, np.repeat(np.arange(draws), EIGHT)
    )
    return ids.reshape(draws, EIGHT)


def _same_alone(logits: NDArray[np.float32], eight: list[SamplingParams], ids: NDArray[np.int64]) -> list[Check]:
    """Really one row, and really eight, draw the very tokens of the tall batch."""
    few = 4
    pairs = [(step, at) for step in range(few) for at in range(EIGHT)]
    alone = all(draw(logits[at : at + 1], [eight[at]], [at], [step])[0] == ids[step, at] for step, at in pairs)
    together = all((draw(logits, eight, range(EIGHT), [step] * EIGHT) == ids[step]).all() for step in range(few))
    return [Check("one row draws what it draws among many", alone), Check("and so do eight", together)]
