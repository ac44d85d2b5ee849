"""What a default client gets: bodies without temperature and seed, through the real door, drawn by the real chain."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import tiny_models
from soloist.daemon import door
from soloist.daemon.adapters import Adapters
from soloist.daemon.config import Config
from soloist.daemon.served import Served, make_served
from soloist.executor.engine import Engine
from soloist.executor.request import Request
from soloist.executor.settings import EngineSettings, ModelFacts
from soloist.sampler import params
from soloist.tokenizer.tokenizer import Tokenizer

from . import oracle
from .drawing import draw
from .verdict import Check, Effort, follows

LOGITS = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
LENGTH = 24


def client(effort: Effort) -> list[Check]:
    """Default bodies: random and unlike. Temperature 0 and explicit seeds, 0 included: alike, alone and in a batch."""
    with tempfile.TemporaryDirectory() as folder:
        served = _served(Path(folder))
        default = [_request(served, {}) for _ in range(max(2000, effort.draws // 5))]
        null = [_request(served, {"temperature": None, "seed": None}) for _ in range(4)]
        greedy = [_request(served, {"temperature": 0}) for _ in range(4)]
        seeded = {seed: [_request(served, {"seed": seed}) for _ in range(4)] for seed in (0, 4242, -1)}
    first = draw(
        np.tile(LOGITS, (len(default), 1)), [own.sampling for own in default], [0] * len(default), [0] * len(default)
    )
    seeds = [own.sampling.seed for own in default]
    crowd = _texts([*default[:5], *seeded[4242][:1]])[-1]
    return [
        follows("first tokens follow the model", first, oracle.distribution(LOGITS, params.SamplingParams())),
        Check("four default bodies give four texts", len(set(_texts(default[:4]))) == 4),
        Check("null is omitted", len(set(_texts(null))) == 4),
        Check("fresh seeds differ and are not 0", len(set(seeds)) == len(seeds) and 0 not in seeds),
        Check("temperature 0 gives one text, the best", set(_texts(greedy)) == {"0" * LENGTH}),
        Check("a seed gives one text", all(len(set(_texts(four))) == 1 for four in seeded.values())),
        Check("unlike seeds give unlike texts", len({_texts(four)[0] for four in seeded.values()}) == len(seeded)),
        Check("a seed gives the same text in a crowd", crowd == _texts(seeded[4242][:1])[0]),
    ]


def _texts(requests: list[Request]) -> list[str]:
    """What each request reads, LENGTH tokens long, drawn as one batch."""
    count = len(requests)
    logits, own, choices = np.tile(LOGITS, (count, 1)), [request.sampling for request in requests], [0] * count
    steps = [draw(logits, own, choices, [step] * count) for step in range(LENGTH)]
    return ["".join(map(str, text)) for text in np.stack(steps, axis=1)]


def _request(served: Served, body: dict[str, object]) -> Request:
    raw = orjson.dumps({"prompt": "x", **body})
    return door.open_completion(raw, served).requests(None)[0]


def _served(folder: Path) -> Served:
    tiny_models.scripted(folder, dist=tiny_models.ABCD)
    tokenizer = Tokenizer.load(folder)
    facts = ModelFacts(tokenizer.vocab_size, 4096, "llama", 0, "float32", quantized=False, batched=True)
    adapters = Adapters(Engine(EngineSettings(folder)))
    # The table is read at the moment of the call: a mutant has replaced it by then.
    return replace(make_served(Config(), folder, tokenizer, facts, adapters), defaults=params.DEFAULTS)
