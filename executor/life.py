"""The life of the executor thread as the event loop sees it: spawned, loaded, ended, replaced.

Runs on the event loop, but for `_thread_main`. MLX is imported by the executor thread, never here.
"""

import asyncio
import importlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..lora.info import AdapterInfo
from .errors import ExecutorError, ModelLoadError
from .inbox import Inbox
from .pulse import Pulse
from .request import AdapterReply, Event, Stop
from .settings import EngineSettings, ModelFacts

JOIN_S = 2.0


class Life:
    """One thread after another. `deliver` gets the events of the living one; `bereaved` is told of a death."""

    def __init__(
        self,
        settings: EngineSettings,
        deliver: Callable[[Sequence[Event | AdapterReply]], None],
        bereaved: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self.inbox = Inbox()
        self.pulse = Pulse(0)
        self.alive = False
        self.stopping = False
        self.failed: str | None = None
        self.facts: ModelFacts | None = None
        self.adapters: dict[str, AdapterInfo] = {}
        self.remark: str | None = None
        self._deliver = deliver
        self._bereaved = bereaved
        self._deaths: deque[float] = deque()

    def begin(self) -> None:
        """Spawn the first thread. To be called on the running event loop that all news shall come to."""
        self._loop = asyncio.get_running_loop()
        self.first_load: asyncio.Future[ModelFacts] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._spawn(model=None)

    def _spawn(self, model: Any) -> None:
        self.pulse, self.inbox = Pulse(self.pulse.generation + 1), Inbox()
        self.alive = True
        self._ended.clear()
        name = f"soloist-executor-{self.pulse.generation}"
        # A daemon thread: a step that hangs in native code must not keep the process from exiting.
        self._thread = threading.Thread(
            target=self._thread_main, args=(self.pulse, self.inbox, model), name=name, daemon=True
        )
        self._thread.start()

    def _thread_main(self, pulse: Pulse, inbox: Inbox, model: Any) -> None:
        """On the executor thread: the first import of MLX happens here."""

        def ended(reason: str | None, model: Any) -> None:
            self._call(self._on_end, pulse, reason, model)

        try:
            worker = importlib.import_module(".worker", __package__)
        except Exception as error:
            ended(f"MLX cannot be imported: {error}", None)
            return
        worker.thread_main(
            self.settings,
            inbox,
            pulse,
            outlet=lambda events: self._call(self._on_events, pulse, events),
            model=model,
            on_load=lambda *news: self._call(self._on_load, *news),
            on_end=ended,
        )

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        """From the executor thread to the loop. A loop that has closed wants nothing any more."""
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _on_events(self, pulse: Pulse, events: Sequence[Event | AdapterReply]) -> None:
        if pulse is self.pulse:  # else: news of a thread that has been replaced
            self._deliver(events)

    def _on_load(self, facts: ModelFacts, adapters: tuple[AdapterInfo, ...], remark: str | None) -> None:
        self.facts, self.remark = facts, remark
        self.adapters = {adapter.name: adapter for adapter in adapters}
        if not self.first_load.done():
            self.first_load.set_result(facts)

    def _on_end(self, pulse: Pulse, reason: str | None, model: Any) -> None:
        """The thread is gone. Unless that was wanted, or it keeps dying, a new one takes its place."""
        self.alive = False
        self._ended.set()
        if reason is None:
            return
        pulse.last_error = reason
        self._bereaved(reason)
        if not self.first_load.done():
            self.failed = reason
            self.first_load.set_exception(ModelLoadError(reason))
            self.first_load.exception()  # it may be that nobody waits for it
        elif not self.stopping and not self._keeps_dying(reason):
            self._spawn(model)
            self.pulse.last_error = reason

    def _keeps_dying(self, reason: str) -> bool:
        now = time.monotonic()
        self._deaths.append(now)
        while self._deaths[0] < now - self.settings.respawn_window:
            self._deaths.popleft()
        if len(self._deaths) > self.settings.respawns:
            self.failed = f"the executor died {len(self._deaths)} times, the last time of: {reason}"
        return self.failed is not None

    async def end(self, within_s: float) -> None:
        """Ask the thread to end, and wait for it. Raises ExecutorError when a step is still running."""
        self.stopping = True
        if not self.alive:
            return
        self.inbox.put(Stop())
        try:
            await asyncio.wait_for(self._ended.wait(), within_s)
        except TimeoutError:
            raise ExecutorError("the executor thread did not end: a step is still running") from None
        await asyncio.to_thread(self._thread.join, JOIN_S)
