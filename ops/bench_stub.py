"""The front end alone: the real HTTP stack, tokenizer and stop scan over an engine that has every token at once.

A process of its own on one core. Run as a module with a model folder; says its port and its processor time when asked.
"""

import asyncio
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from ..daemon.adapters import Adapters
from ..daemon.address import bind
from ..daemon.config import Config
from ..daemon.keys import read_keys
from ..daemon.serve import open_http
from ..daemon.served import make_served
from ..daemon.state import NO_EXECUTOR, Daemon
from ..executor.engine import Engine
from ..executor.health import Health
from ..executor.request import Delta, Event, Request
from ..executor.settings import ModelFacts
from ..executor.stream import Stream
from ..tokenizer.tokenizer import Tokenizer
from .bench_child import answer_lines

TEXT = (
    "The old clockmaker lived by the sea, and every morning he wound the clocks of the whole village. One day a young "
    "woman came to his door with a small brass watch that had stopped at noon, many years ago. He opened it, looked at "
    "its wheels for a long time, and said: there is nothing broken here, it only waits for somebody to begin again. "
)


@dataclass(frozen=True, slots=True)
class Meter:
    """processor_s: what this process has used so far."""

    port: int
    processor_s: float


class StubEngine:
    """Gives every stream one token, waits until all have been taken, and gives the next: one data event a token.

    Lives on the event loop; stands where the daemon expects an `Engine`.
    """

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.adapters: dict[str, object] = {}
        self._ids = ids
        self._live: dict[str, tuple[Stream, int]] = {}
        self._untaken: set[str] = set()

    def submit(self, request: Request) -> Stream:
        stream = PacedStream(request, self)
        if not self._live:
            asyncio.get_running_loop().call_soon(self._step)
        self._live[request.id] = stream, 0
        return stream

    def health(self) -> Health:
        return replace(NO_EXECUTOR, state="ready", running=len(self._live))

    def _step(self) -> None:
        for name, (stream, done) in list(self._live.items()):
            last = done + 1 >= stream.request.max_tokens
            token = self._ids[done % len(self._ids)]
            self._untaken.add(name)
            if last:
                del self._live[name]
            else:
                self._live[name] = stream, done + 1
            stream.deliver(Delta(name, 0, (token,), finish="length" if last else None))

    def taken(self, name: str) -> None:
        """A stream has read its token, or will never read it."""
        if name not in self._untaken:
            return
        self._untaken.discard(name)
        if not self._untaken and self._live:
            asyncio.get_running_loop().call_soon(self._step)

    def forget(self, name: str) -> None:
        self._live.pop(name, None)
        self.taken(name)


class PacedStream(Stream):
    """A mailbox that says when it has been read."""

    def __init__(self, request: Request, engine: StubEngine) -> None:
        super().__init__(request, lambda choice: engine.forget(request.id))
        self._taken = engine.taken

    async def __anext__(self) -> Event:
        event = await super().__anext__()
        self._taken(self.request.id)
        return event


def stub_daemon(folder: Path) -> Daemon:
    """A daemon that is loaded and ready, with the model's tokenizer and no model."""
    tokenizer = Tokenizer.load(folder)
    config = Config(model=str(folder), max_batch=64, port=0, log_level="warning")
    facts = ModelFacts(tokenizer.vocab_size, 1 << 20, "stub", 0, "float32", quantized=False, batched=True)
    daemon = Daemon(config, read_keys(config), ThreadPoolExecutor(2))
    daemon.engine = cast(Engine, StubEngine(tuple(tokenizer.encode(TEXT))))
    daemon.served = make_served(config, folder, tokenizer, facts, Adapters(daemon.engine))
    return daemon


def main(folder: Path) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    listener = bind("127.0.0.1", 0)
    port: int = listener.getsockname()[1]

    async def serve() -> None:
        await open_http(stub_daemon(folder), listener)
        ready.set()
        await asyncio.Event().wait()

    ready = threading.Event()
    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    assert ready.wait(60), "the stub did not start"
    answer_lines(lambda _: Meter(port, time.process_time()), dict)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
