"""The thread that owns MLX: it opens a stream and its own dice, loads the model, and then makes step after step.

Everything here runs on the executor thread; the event loop hands commands in and gets events out.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from ..sampler.keys import fresh_seed
from ..sampler.params import SamplingParams
from . import device, kv
from .batch import Batch
from .errors import ModelLoadError
from .inbox import Inbox
from .model import LoadedModel, load
from .prefill import Pace, Prefill
from .pulse import Pulse
from .recovery import put_rows_on_trial
from .request import Cancel, Command, Delta, Event, Failure, Progress, Request, Stop
from .scheduler import Scheduler
from .settings import EngineSettings

Outlet = Callable[[Sequence[Event]], None]
CLEAR_CACHE_EVERY = 512  # steps: freed buffers go back to the system now and then, not on every step


class Worker:
    """One life of the executor thread. `model` is what a dead generation left behind, if it had loaded one."""

    def __init__(self, settings: EngineSettings, inbox: Inbox, pulse: Pulse, outlet: Outlet) -> None:
        self.settings = settings
        self.inbox = inbox
        self.pulse = pulse
        self.outlet = outlet
        self.outbox: list[Event] = []
        self.model: LoadedModel | None = None
        self._stopping = False

    def run(self, model: LoadedModel | None, loaded: Callable[[LoadedModel, str | None], None]) -> None:
        """Open, load, prove, serve. Returns on Stop; whatever else ends it is raised after the thread is tidy."""
        try:
            remark = self._open_thread()
            self.model = model or load(self.settings, self.pulse.tick)
            self._open_rooms(self.model)
            self._prove()
            self.pulse.loaded = True
            loaded(self.model, remark)
            self._serve()
        finally:
            self._close_thread()

    # -- the thread ------------------------------------------------------------------------------

    def _open_thread(self) -> str | None:
        """A stream for life, and a random state of this thread's own that no other thread can share."""
        remark = device.prepare()
        stream = mx.new_stream(mx.default_device())
        mx.set_default_stream(stream)
        mx.random.seed(int.from_bytes(os.urandom(8)))
        mx.eval(mx.random.state)
        thread = threading.current_thread()
        self.pulse.thread, self.pulse.thread_id = thread.name, thread.native_id
        self.pulse.stream, self.pulse.device = str(stream), device.describe()
        self.pulse.seed_state = "seeded from the operating system's entropy, evaluated"
        return remark

    def _close_thread(self) -> None:
        """Release every array here, then the streams: a thread that leaves them behind aborts the process."""
        self.scheduler: Scheduler | None = None
        self.batch: Batch | None = None
        self.outbox.clear()
        mx.clear_cache()
        mx.clear_streams()

    def _open_rooms(self, model: LoadedModel) -> None:
        self.batch = Batch(model.network, model.facts.vocab_size, batched=model.facts.batched)
        rows = self.settings.max_batch if model.facts.batched else 1
        self.scheduler = Scheduler(rows, lambda: kv.make(model.network))
        self.pace = Pace(self.settings.prefill_chunk)

    def _prove(self) -> None:
        """Draw one token the way that a default client does, before anybody is told that the model is ready."""
        probe = Request("canary", (0,), 1, SamplingParams(seed=fresh_seed()), probe=True)
        self.scheduler.add(probe)
        while not self._idle:
            self._turn()
        events, self.outbox = self.outbox, []
        drawn = [event.ids for event in events if isinstance(event, Delta) and event.ids]
        if not drawn:
            raise ModelLoadError("the model loads, but a sampled draw from it fails: " + _reasons(events))
        self.pulse.canary = f"drew token {drawn[0][0]}"

    # -- the loop --------------------------------------------------------------------------------

    @property
    def _idle(self) -> bool:
        return self.scheduler.idle and self.batch.idle

    def _serve(self) -> None:
        while not self._stopping:
            if self._idle:
                self._rest()
            for command in self.inbox.take(block=self._idle):
                self.obey(command)
            self._turn()
            self.flush()

    def _rest(self) -> None:
        mx.clear_cache()
        self.pulse.running = self.pulse.waiting = 0
        self.pulse.rest()

    def _turn(self) -> None:
        """One pass: admit, a prefill chunk, a decode step."""
        self.pulse.wake()
        self.outbox += self.scheduler.admit(len(self.batch.rows))
        self._prefill()
        self._decode()
        self.pulse.running, self.pulse.waiting = len(self.batch.rows), len(self.scheduler.waiting)

    def obey(self, command: Command) -> None:
        match command:
            case Request():
                self.scheduler.add(command)
            case Cancel(id=request, choice=choice):
                self.scheduler.cancel(request, choice)
                self.batch.cancel(request, choice)
            case Stop():
                self._stopping = True

    def flush(self) -> None:
        """Hand all rows' news to the event loop in one call."""
        if self.outbox:
            events, self.outbox = self.outbox, []
            self.outlet(events)

    # -- prefill and decode ----------------------------------------------------------------------

    def _prefill(self) -> None:
        """One chunk of the prompt that is first in line; a finished prompt joins the batch."""
        if not self.scheduler.prefills:
            return
        job = self.scheduler.prefills[0]
        try:
            begun = time.monotonic()
            fed = job.advance(self.model.network, self.pace.chunk(alone=not self.batch.rows))
            self.pace.prefilled(fed, time.monotonic() - begun)
            self.pulse.tick()
            if job.remaining <= 0:
                self.scheduler.prefills.popleft()
                self.batch.join([row for row in job.rows if not row.ended], job.layers)
            else:
                self.outbox.append(Progress(job.rows[0].request.id, done=job.done, total=len(job.ids) - 1))
        except Exception as error:
            self._fail_prefill(job, error)

    def _fail_prefill(self, job: Prefill, error: Exception) -> None:
        self.note(error)
        if self.scheduler.prefills and self.scheduler.prefills[0] is job:
            self.scheduler.prefills.popleft()
        for row in job.rows:
            if not row.ended:
                row.ended = True
                self.outbox.append(Failure(row.request.id, "executor_failed", FAILED, row.choice))

    def _decode(self) -> None:
        if self.batch.idle:
            return
        begun = time.monotonic()
        try:
            self.outbox += self.batch.step()
        except Exception as error:
            self.note(error)
            self._recover()
        self.pulse.steps += 1
        self.pulse.tick()
        self.pace.stepped(time.monotonic() - begun)
        if self.pulse.steps % CLEAR_CACHE_EVERY == 0:
            mx.clear_cache()

    def _recover(self) -> None:
        """The step's caches are lost. Find the row that broke it by trying each alone; the others go on."""
        suspects = self.batch.abandon()
        mx.clear_cache()
        innocent, failures = put_rows_on_trial(suspects, self._trial_batch, self.pace.largest, self.pulse.tick)
        for row, error in failures:
            self.note(error)
            row.ended = True
            self.outbox.append(Failure(row.request.id, "executor_failed", FAILED, row.choice))
        for row in reversed(innocent):
            self.scheduler.resume(row)

    def _trial_batch(self) -> Batch:
        return Batch(self.model.network, self.model.facts.vocab_size, batched=self.model.facts.batched)

    def note(self, error: BaseException) -> None:
        """Remember what went wrong, as text: an exception object would carry arrays out of this thread."""
        self.pulse.last_error = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


FAILED = "the executor failed on this request; nothing else was affected"


def _reasons(events: Sequence[Event]) -> str:
    return "; ".join(event.message for event in events if isinstance(event, Failure)) or "no token came back"


def thread_main(
    settings: EngineSettings,
    inbox: Inbox,
    pulse: Pulse,
    outlet: Outlet,
    model: Any,
    loaded: Callable[[Any, str | None], None],
    ended: Callable[[str | None, Any], None],
) -> None:
    """Body of the executor thread. `ended(reason, model)` is its last act; reason None is a wanted end."""
    reason: str | None = None
    worker = Worker(settings, inbox, pulse, outlet)
    try:
        worker.run(model, loaded)
    except ModelLoadError as error:
        reason = str(error)
    except BaseException as error:
        worker.note(error)
        reason = pulse.last_error
    ended(reason, worker.model)
