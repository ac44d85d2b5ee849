"""Isolation of the deterministic parts: filters, order, penalties, log-probabilities, accept and residual."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray
from soloist.sampler import chain, noise, order, speculative
from soloist.sampler.params import SamplingParams
from soloist.sampler.rows import Rows, RowSpec

from . import oracle
from .cells import LOGITS, MATRIX
from .verdict import Check, Effort, close

WIDE = 1500  # a vocabulary of many blocks, not a whole number of them


def filters(effort: Effort) -> list[Check]:
    """The drawn id is the one that the oracle's support and the row's own noise give, ties included."""
    random = np.random.default_rng(effort.seed)
    # Rounded, so that many tokens are exactly equal and the tie rule matters.
    logits = np.round(random.normal(0, 2, (len(MATRIX), WIDE)), 1).astype(np.float32)
    cells = [replace(cell, seed=effort.seed + at) for at, cell in enumerate(MATRIX)]
    rows = Rows(WIDE, [RowSpec(cell) for cell in cells])
    keys = rows.keys([0] * len(cells))
    ids = np.array(chain.sample(mx.array(logits), rows, keys).ids)
    targets = np.array(speculative.target(mx.array(logits), rows), dtype=np.float64)
    wrong = support = 0
    error = 0.0
    for at, cell in enumerate(cells):
        target = oracle.distribution(logits[at].astype(np.float64), cell)
        own = keys[at : at + 1]
        made = noise.token_noise(own, mx.arange(WIDE)[None]) if cell.top_k else noise.row_noise(own, WIDE)
        with np.errstate(divide="ignore"):
            wrong += int(ids[at] != np.argmax(np.log2(target) + np.array(made[0], dtype=np.float64)))
        support += int(((targets[at] > 0) != (target > 0)).sum() > 1)  # one token may fall either side of top_p
        error = max(error, float(np.abs(targets[at] - target).sum()))
    return [
        # A token at the very edge of a nucleus may fall either side in float32; more than one row cannot.
        Check("drawn ids are the oracle's", wrong <= 1, {"rows": len(cells), "differ": wrong}),
        Check("the dense target has the oracle's support", support == 0),
        Check("the dense target has the oracle's masses", error < 2e-3, {"error": error}),
        *_ranking(random),
        *_edges(),
    ]


def penalties(effort: Effort) -> list[Check]:
    """Bias and penalties against the oracle, with prompts, repeats, negative logits and a long history."""
    random = np.random.default_rng(effort.seed)
    vocabulary, steps = 40, 300
    logits = random.normal(-1, 3, (6, vocabulary)).astype(np.float32)
    params = [
        SamplingParams(presence_penalty=1.5),
        SamplingParams(frequency_penalty=0.25),
        SamplingParams(repetition_penalty=1.7),
        SamplingParams(repetition_penalty=0.6, presence_penalty=-1.0, frequency_penalty=0.1, logit_bias=((3, 4.0),)),
        SamplingParams(logit_bias=((0, -100.0), (vocabulary - 1, 2.5))),
        SamplingParams(),
    ]
    prompt = [1, 2, 2, 5, 30]
    rows = Rows(vocabulary, [RowSpec(row, prompt=prompt) for row in params])
    generated = random.integers(0, 20, (steps, len(params)))
    checks = [_penalised("before the first token", rows, logits, params, prompt, generated[:0])]
    for step in range(steps):
        rows.record(mx.array(generated[step].astype(np.uint32)))
    checks.append(_penalised("after 300 tokens", rows, logits, params, prompt, generated))
    rows.keep([3, 0])
    rows.add([RowSpec(params[2], prompt=prompt, generated=list(generated[:, 2]))])
    places = [3, 0, 2]
    name = "after rows left, moved and joined"
    checks.append(_penalised(name, rows, logits[places], [params[at] for at in places], prompt, generated[:, places]))
    return checks


def logprobs(effort: Effort) -> list[Check]:
    """Log-probabilities are the raw model's, of the drawn token; alternatives are in order; alone or in a batch."""
    random = np.random.default_rng(effort.seed)
    logits = random.normal(0, 4, (8, 400)).astype(np.float32)
    logits[7, 5:] = -np.inf
    asked = [None, 0, 5, 20, 1, None, 3, 8]
    params = SamplingParams(temperature=1.9, presence_penalty=2.0, logit_bias=((3, 5.0),), top_k=200)
    specs = [RowSpec(params, at, logprobs=count) for at, count in enumerate(asked)]
    rows = Rows(400, specs)
    found = chain.sample(mx.array(logits), rows, rows.keys([0] * 8))
    ids, own = np.array(found.ids), np.array(found.logprob)
    with np.errstate(divide="ignore"):
        truth = np.maximum(oracle.log_softmax(logits.astype(np.float64)), -9999.0)
    ranking = np.argsort(-truth, axis=-1, kind="stable")[:, :20]
    asking = [at for at, count in enumerate(asked) if count is not None]
    alone = Rows(400, specs[3:4])
    single = chain.sample(mx.array(logits[3:4]), alone, alone.keys([0]))
    return [
        close("the drawn token's own", own[asking], truth[asking, ids[asking]], 1e-4),
        Check("some drawn token is not the best one", bool((ids != ranking[:, 0]).any())),
        Check("alternatives in order", bool((np.array(found.top_ids)[asking] == ranking[asking]).all())),
        close("alternatives' values", np.array(found.top_logprobs)[3], truth[3, ranking[3]], 1e-4),
        Check("all finite", bool(np.isfinite(np.array(found.top_logprobs)).all())),
        close("the same alone", single.logprob[0], own[3], 1e-4),
    ]


def acceptance(effort: Effort) -> list[Check]:
    """Accept test and residual against their definitions."""
    random = np.random.default_rng(effort.seed)
    p, q = (random.dirichlet(np.full(12, 0.5), 64).astype(np.float32) for _ in range(2))
    draft, uniform = random.integers(0, 12, 64), random.uniform(0, 1, 64).astype(np.float32)
    at = np.arange(64)
    arrays = [mx.array(part) for part in (p, q, draft, uniform)]
    left = np.maximum(p.astype(np.float64) - q, 0)
    without = p.astype(np.float64) * (np.arange(12) != draft[:, None])
    drawn, certain = speculative.accept(*arrays), speculative.accept(arrays[0], None, arrays[2], arrays[3])
    rest, rest_certain = speculative.residual(*arrays[:2]), speculative.residual_without(arrays[0], arrays[2])
    return [
        Check("accepts where u < p / q", bool((np.array(drawn) == (uniform * q[at, draft] < p[at, draft])).all())),
        Check("accepts where u < p without q", bool((np.array(certain) == (uniform < p[at, draft])).all())),
        close("residual is max(p - q, 0) renormalised", rest, left / left.sum(-1, keepdims=True), 1e-4),
        close("residual without the draft", rest_certain, without / without.sum(-1, keepdims=True), 1e-4),
        close("residuals sum to one", [mx.sum(part, axis=-1) for part in (rest, rest_certain)], 1.0, 1e-5),
        close("residual of equals is the target", speculative.residual(arrays[0], arrays[0]), p, 1e-6),
    ]


def _penalised(
    name: str,
    rows: Rows,
    logits: NDArray[np.float32],
    params: list[SamplingParams],
    prompt: list[int],
    generated: NDArray[np.int64],
) -> Check:
    wanted = [
        oracle.adjusted(logits[at].astype(np.float64), row, prompt, generated[:, at]) for at, row in enumerate(params)
    ]
    return close(f"penalties {name}", chain.adjusted(mx.array(logits), rows), wanted, 1e-4)


def _ranking(random: np.random.Generator) -> list[Check]:
    right = True
    for width in (1, 63, 64, 65, 1000):
        scores = np.round(random.normal(0, 2, (3, width)), 1).astype(np.float32)
        ranked = np.argsort(-scores, axis=-1, kind="stable")
        for count in {1, min(3, width), min(70, width), width}:
            right &= bool((np.array(order.top(mx.array(scores), count)) == ranked[:, :count]).all())
    return [Check("the best ids come in order, lower id first among equals", right)]


def _edges() -> list[Check]:
    """Rows at the limit: one allowed token, a uniform row, a tiny top_p, nothing to draw from."""
    even = np.zeros((1, 200), dtype=np.float32)
    counts = []
    for params in (SamplingParams(top_k=7), SamplingParams(top_p=0.095), SamplingParams(top_p=1e-9)):
        target = np.array(speculative.target(mx.array(even), Rows(200, [RowSpec(params)])))[0]
        counts.append(np.flatnonzero(target).tolist())
    best_kept = _top_ids(LOGITS, SamplingParams(top_p=0.0)) | _top_ids(LOGITS, SamplingParams(min_p=1.0))
    return [
        Check("equals enter a filter in order of id", counts == [list(range(7)), list(range(19)), [0]]),
        Check("the best token survives every filter", best_kept == {int(LOGITS.argmax())}),
    ]


def _top_ids(logits: NDArray[np.float32], params: SamplingParams) -> set[int]:
    rows = Rows(logits.size, [RowSpec(params, choice) for choice in range(50)])
    return set(chain.sample(mx.array(np.tile(logits, (50, 1))), rows, rows.keys([0] * 50)).ids.tolist())
