"""The asyncio face of the executor: takes requests, routes events to their streams, answers for its health.

Runs on the event loop. No MLX here.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from ..lora.info import AdapterInfo
from ..sampler.keys import fresh_seed
from ..sampler.params import SamplingParams
from . import admission, vitals
from .errors import AdapterRefused, ExecutorError, Refused
from .health import Health
from .life import Life
from .request import (
    AdapterReply,
    Cancel,
    Delta,
    Event,
    Failure,
    FailureKind,
    LoadAdapter,
    Request,
    UnloadAdapter,
)
from .settings import EngineSettings, ModelFacts
from .stream import Stream
from .tally import Tallies

COME_BACK_S = 1.0
END_S = 1.0


class Engine:
    """One executor and the requests that it serves. All methods are for the event loop that called `start`.

    on_stall: called once when a step has hung for longer than the bound.
    """

    def __init__(self, settings: EngineSettings, on_stall: Callable[[], None] | None = None) -> None:
        self.settings = settings
        self._life = Life(settings, self._deliver, self._on_death)
        self._on_stall = on_stall
        self._streams: dict[str, Stream] = {}
        self._since: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tickets: dict[str, asyncio.Future[AdapterReply]] = {}
        self._draining = False
        self._watch: asyncio.Task[None] | None = None

    @property
    def facts(self) -> ModelFacts | None:
        """What the loaded model is; None until it has been loaded once."""
        return self._life.facts

    @property
    def remark(self) -> str | None:
        """Something about the device that the operator should know."""
        return self._life.remark

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Spawn the executor thread and return; the model loads there."""
        self._life.begin()
        self._watch = asyncio.create_task(self._watch_for_stalls())

    async def loaded(self) -> ModelFacts:
        """Wait for the model and its first sampled token. Raises ModelLoadError."""
        return await asyncio.shield(self._life.first_load)

    def drain(self) -> None:
        """Refuse new requests from now on; the running ones go on."""
        self._draining = self._life.stopping = True

    async def stop(self, grace_s: float) -> None:
        """Let running requests finish for `grace_s` seconds, fail the rest as `draining`, end the thread.

        Raises ExecutorError when the thread does not end because a step is still running.
        """
        self.drain()
        until = time.monotonic() + grace_s
        while self._streams and self._life.alive and time.monotonic() < until:
            await asyncio.sleep(0.02)
        self._fail_all("draining", "the server is shutting down")
        if self._watch:
            self._watch.cancel()
        await self._life.end(max(END_S, until - time.monotonic()))

    def _on_death(self, reason: str) -> None:
        self._fail_all("executor_failed", "the executor thread ended while this request was in it")
        for ticket in list(self._tickets):
            self._on_reply(AdapterReply(ticket, error="the executor thread ended"))

    async def _watch_for_stalls(self) -> None:
        """A stuck native call cannot be interrupted: its requests are told so, and the supervisor may act."""
        was_stalled = False
        while True:
            await asyncio.sleep(min(0.5, self.settings.stall_after / 4))
            stalled = self.health().state == "stalled"
            if stalled and not was_stalled:
                self._fail_all("executor_failed", "the executor is stuck in a step")
                if self._on_stall:
                    self._on_stall()
            was_stalled = stalled

    # -- requests --------------------------------------------------------------------------------

    def submit(self, request: Request) -> Stream:
        """Queue a request. Raises Refused: not ready, draining, the queue is full, more choices than rows."""
        self._check(request)
        stream = Stream(request, lambda choice: self._on_cancel(request.id, choice))
        self._streams[request.id] = stream
        self._since[request.id] = time.monotonic()
        if request.deadline is not None:
            loop = asyncio.get_running_loop()
            self._timers[request.id] = loop.call_at(request.deadline, self._on_deadline, request.id)
        self._life.inbox.put(request)
        return stream

    def _check(self, request: Request) -> None:
        health = self.health()
        if health.state in ("draining", "stopped"):
            raise Refused("draining", "the server is shutting down", COME_BACK_S)
        if health.state == "loading":
            raise Refused("loading", "the model is still loading", COME_BACK_S)
        if not health.ready:
            retry = None if health.state == "failed" else COME_BACK_S
            raise Refused("dead", health.reason or "the executor is not ready", retry)
        if request.n > self.settings.max_batch:
            raise Refused("invalid", f"this server draws at most {self.settings.max_batch} choices at once")
        if not request.probe and len(self._streams) >= self.settings.max_batch + self.settings.max_queue:
            raise Refused("overloaded", f"{len(self._streams)} requests are running or queued", COME_BACK_S)
        if request.id in self._streams:
            raise Refused("invalid", f"a request with the id {request.id} is running")
        assert self.facts is not None
        live = [stream.request for stream in self._streams.values()]
        admission.check(request, live, self.facts, self.settings.max_batch)

    def _deliver(self, events: Sequence[Event | AdapterReply]) -> None:
        for event in events:
            if isinstance(event, AdapterReply):
                self._on_reply(event)
                continue
            stream = self._streams.get(event.request)
            if stream is not None:
                stream.deliver(event)
                if stream.done:
                    self._forget(event.request)

    def _on_cancel(self, request_id: str, choice: int | None) -> None:
        stream = self._streams.get(request_id)
        if stream is None:
            return
        self._life.inbox.put(Cancel(request_id, choice))
        if stream.done:
            self._forget(request_id)

    def _on_deadline(self, request_id: str) -> None:
        self._life.inbox.put(Cancel(request_id))
        self._fail(request_id, "deadline", "the request did not finish within its deadline")

    def _fail_all(self, kind: FailureKind, message: str) -> None:
        for request_id in list(self._streams):
            self._life.inbox.put(Cancel(request_id))
            self._fail(request_id, kind, message)

    def _fail(self, request_id: str, kind: FailureKind, message: str) -> None:
        if stream := self._streams.get(request_id):
            stream.deliver(Failure(request_id, kind, message))
            self._forget(request_id)

    def _forget(self, request_id: str) -> None:
        del self._streams[request_id], self._since[request_id]
        if timer := self._timers.pop(request_id, None):
            timer.cancel()

    # -- adapters --------------------------------------------------------------------------------

    @property
    def adapters(self) -> Mapping[str, AdapterInfo]:
        """The adapters that a request may name."""
        return self._life.adapters

    async def load_adapter(self, name: str, path: str) -> AdapterInfo:
        """Load an adapter beside the others. Raises AdapterRefused, with the reason for a person."""
        return await self._about_adapters(LoadAdapter(self._ticket(), name, path))

    async def unload_adapter(self, name: str) -> AdapterInfo:
        """Forget an adapter; requests that use it finish. Raises AdapterRefused when there is none of this name."""
        return await self._about_adapters(UnloadAdapter(self._ticket(), name))

    def _ticket(self) -> str:
        return f"adapter-{time.monotonic_ns()}"

    async def _about_adapters(self, command: LoadAdapter | UnloadAdapter) -> AdapterInfo:
        if not self.health().ready:
            raise AdapterRefused(self.health().reason or "the executor is not ready")
        waiting = self._tickets[command.ticket] = asyncio.get_running_loop().create_future()
        self._life.inbox.put(command)
        reply: AdapterReply = await waiting
        if reply.error is not None or reply.adapter is None:
            raise AdapterRefused(reply.error or "the adapter is not there")
        if isinstance(command, LoadAdapter):
            self._life.adapters[command.name] = reply.adapter
        else:
            self._life.adapters.pop(command.name, None)
        return reply.adapter

    def _on_reply(self, reply: AdapterReply) -> None:
        waiting = self._tickets.pop(reply.ticket, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    # -- health ----------------------------------------------------------------------------------

    def health(self) -> Health:
        """What is true now; never waits for the executor."""
        oldest = min(self._since.values(), default=None)
        return vitals.examine(self._life, draining=self._draining, live=len(self._streams), oldest=oldest)

    @property
    def tallies(self) -> Tallies:
        """What the living executor thread has counted of its work; begun anew with each thread."""
        return self._life.pulse.tallies

    async def canary(self, within_s: float) -> None:
        """Draw one sampled token on the real thread now. Raises ExecutorError, or TimeoutError after `within_s`."""
        name = f"canary-{time.monotonic_ns()}"
        stream = self.submit(Request(name, (0,), 1, SamplingParams(seed=fresh_seed()), probe=True))
        try:
            async with asyncio.timeout(within_s):
                async for event in stream:
                    match event:
                        case Failure(message=message):
                            raise ExecutorError(message)
                        case Delta(finish=str()):
                            return
        finally:
            stream.cancel()
        raise ExecutorError("the executor gave no token")
