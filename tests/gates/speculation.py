"""Draft, accept, residual, composed as an engine would: what comes out has the target's distribution."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import numpy as np
from soloist.sampler import keys, speculative
from soloist.sampler.params import SamplingParams
from soloist.sampler.rows import Rows, RowSpec

from . import oracle
from .cells import LOGITS, MATRIX, NARROW, label
from .drawing import draw
from .verdict import CHANCE, Check, Effort, Floats, follows

DRAFTED = 3


def speculation(effort: Effort) -> list[Check]:
    """Every emitted position follows its target, for a draft distribution and for a deterministic draft."""
    checks = []
    for cell in MATRIX[::5] if effort.wide else NARROW[:5]:
        params = replace(cell, seed=effort.seed)
        targets = [np.roll(LOGITS, 7 * at) for at in range(DRAFTED + 1)]
        wanted = [oracle.distribution(scores.astype(np.float64), cell) for scores in targets]
        # A draft model that is near, but not the same: the target's logits, flattened and shaken.
        shaken = np.random.default_rng(effort.seed).normal(0, 0.5, LOGITS.size)
        drafts = [oracle.distribution(0.8 * scores + shaken, cell) for scores in targets[:-1]]
        checks += _judge(label(cell), params, targets, wanted, drafts, effort.draws)
        checks += _judge(label(cell) + ", deterministic", params, targets, wanted, None, effort.draws)
    return checks


def _judge(
    name: str,
    params: SamplingParams,
    scores: list[np.ndarray],
    wanted: list[Floats],
    drafts: list[Floats] | None,
    draws: int,
) -> list[Check]:
    rows = Rows(LOGITS.size, [RowSpec(params)])
    p = [speculative.target(mx.array(part[None].astype(np.float32)), rows)[0] for part in scores]
    q = None
    if drafts is None:
        # The most likely token, then the second, then the best again: kept often, refused often.
        best = [int(np.argsort(-target)[at % 2 if (target > 0).sum() > 1 else 0]) for at, target in enumerate(wanted)]
        draft = np.tile(best[:DRAFTED], (draws, 1))
        chance = [float(target[id]) for target, id in zip(wanted, best, strict=True)][:DRAFTED]
    else:
        plain = SamplingParams(seed=params.seed + 1)
        draft = np.stack([_drafted(part, plain, at, draws) for at, part in enumerate(drafts)], axis=1)
        chance = [float(np.minimum(a, b).sum()) for a, b in zip(wanted, drafts, strict=False)]
        q = mx.broadcast_to(mx.array(np.stack(drafts).astype(np.float32)), (draws, DRAFTED, LOGITS.size))
    whole = mx.broadcast_to(mx.stack(p), (draws, DRAFTED + 1, LOGITS.size))
    seeds, choices, places = [params.seed] * draws, [0] * draws, range(draws)
    dice = [mx.array(keys.draw_keys(seeds, choices, places, use)) for use in (keys.ACCEPT, keys.RESIDUAL)]
    count, after = (np.array(part) for part in speculative.verify(whole, q, mx.array(draft), *dice))
    emitted = np.concatenate([draft, draft[:, :1]], axis=1)
    emitted[np.arange(draws), count] = after
    checks = [
        follows(f"{name}, position {at}", emitted[count >= at, at], wanted[at])
        for at in range(DRAFTED + 1)
        if (count >= at).sum() >= draws / 20
    ]
    return [*checks, _accepted(name, count, chance, draws)]


def _drafted(target: Floats, params: SamplingParams, at: int, draws: int) -> np.ndarray:
    with np.errstate(divide="ignore"):
        logits = np.log(target)
    return draw(np.tile(logits, (draws, 1)), [params] * draws, [0] * draws, range(at * draws, (at + 1) * draws))


def _accepted(name: str, count: np.ndarray, chance: list[float], draws: int) -> Check:
    """The first draft is kept as often as the overlap of the two distributions says, neither always nor never."""
    share = float((count > 0).mean())
    slack = float(np.sqrt(np.log(2 / CHANCE) / (2 * draws)))
    sane = 0.02 < share < 0.98 or not 0.05 < chance[0] < 0.95
    return Check(f"{name}, acceptance", abs(share - chance[0]) < slack and sane, {"share": share, "due": chance[0]})
