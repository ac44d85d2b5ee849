"""Drives a real engine in the test's own process."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from soloist.executor.engine import Engine
from soloist.executor.request import Delta, Event, Failure, Logprobs, Progress, Request
from soloist.executor.settings import EngineSettings
from soloist.executor.stream import Stream
from soloist.sampler.params import SamplingParams
from tiny_models import EOS

_serial = count()


@asynccontextmanager
async def running(folder: Path, **settings: Any) -> AsyncIterator[Engine]:
    """A loaded engine; it ends with the block, whatever happened in it."""
    engine = Engine(EngineSettings(folder, **settings))
    await engine.start()
    try:
        await engine.loaded()
        yield engine
    finally:
        await engine.stop(0.0)


def ask(prompt: str | Iterable[int] = "x", max_tokens: int = 8, **fields: Any) -> Request:
    """A request with the sampling that a default client gets, unless `sampling` fields are given."""
    names = SamplingParams.__dataclass_fields__
    chosen = {name: fields.pop(name) for name in list(fields) if name in names}
    ids = tuple(prompt.encode()) if isinstance(prompt, str) else tuple(prompt)
    sampling = SamplingParams(**{"seed": 1_000_003 + next(_serial)} | chosen)
    return Request(f"r{next(_serial)}", ids, max_tokens, sampling, frozenset({EOS}), **fields)


@dataclass
class Answer:
    """All that one choice got."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    finish: str | None = None
    ended_by: int | None = None
    failure: Failure | None = None
    cached: int = 0

    @property
    def text(self) -> str:
        return bytes(self.ids).decode()


async def collect(stream: Stream) -> list[Answer]:
    """Read a stream to its end: one answer a choice."""
    answers = [Answer() for _ in range(stream.request.n)]
    async for event in stream:
        absorb(answers, event)
    return answers


def absorb(answers: list[Answer], event: Event) -> None:
    match event:
        case Delta():
            answer = answers[event.choice]
            answer.ids += event.ids
            answer.logprobs += event.logprobs
            answer.finish, answer.ended_by, answer.cached = event.finish, event.ended_by, event.cached_tokens
        case Failure(choice=None):
            for answer in answers:
                answer.failure = event
        case Failure(choice=choice):
            answers[choice].failure = event
        case Progress():
            pass


async def answer(engine: Engine, request: Request) -> Answer:
    """The only choice of a request, whole."""
    (only,) = await collect(engine.submit(request))
    return only
