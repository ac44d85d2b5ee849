"""The work of the executor thread, one round after another: admit, a prefill chunk, a decode step.

Runs on the executor thread only. What a request does wrong ends that request; what a step does wrong is sorted out
row by row; whatever else escapes from here ends the thread.
"""

import time
from functools import partial

import mlx.core as mx

from . import kv
from .batch import Batch, OnLeave, forget
from .model import LoadedModel
from .pace import Pace
from .prefill import Prefill
from .prefix_keeper import PrefixKeeper
from .pulse import Pulse
from .recovery import put_rows_on_trial
from .request import Cancel, Command, Event, Failure, Progress, Request, Stop
from .scheduler import Scheduler
from .sequence import Sequence
from .settings import EngineSettings

FAILED = "the executor failed on this request; nothing else was affected"
CLEAR_CACHE_EVERY = 512  # steps: freed buffers go back to the system now and then, not on every step


class Rounds:
    """The rows of one life of the thread. `outbox` fills with news that the worker flushes after each round."""

    def __init__(self, model: LoadedModel, settings: EngineSettings, pulse: Pulse) -> None:
        self.model = model
        self.pulse = pulse
        self.outbox: list[Event] = []
        self.stopping = False
        new_layers = partial(kv.make, model.network)
        self.prefixes = PrefixKeeper(settings, model.facts.dtype, new_layers, self._note)
        self.batch = self._new_batch(self.prefixes.on_leave)
        self.scheduler = Scheduler(settings.max_batch if model.facts.batched else 1)
        self.pace = Pace(settings.prefill_chunk)

    def _new_batch(self, on_leave: OnLeave = forget) -> Batch:
        facts = self.model.facts
        return Batch(self.model.network, facts.vocab_size, batched=facts.batched, on_leave=on_leave)

    @property
    def idle(self) -> bool:
        return self.scheduler.idle and self.batch.idle and not self.prefixes.cache.unsaved

    def obey(self, command: Command) -> None:
        match command:
            case Request():
                self.scheduler.add(command)
            case Cancel(id=request, choice=choice):
                self.scheduler.cancel(request, choice)
                self.batch.cancel(request, choice)
            case Stop():
                self.stopping = True

    def turn(self) -> None:
        """One round. Ticks the pulse for each piece of work done."""
        self.pulse.wake()
        self.outbox += self.scheduler.admit(len(self.batch.rows))
        undisturbed = not self.scheduler.prefills
        self._prefill()
        self._decode(undisturbed)
        self.prefixes.save_some()
        self._publish()

    def _publish(self) -> None:
        """The figures that others may read."""
        pulse, cache = self.pulse, self.prefixes.cache
        pulse.running, pulse.waiting = len(self.batch.rows), len(self.scheduler.waiting)
        pulse.cache_bytes, pulse.cache_hits, pulse.cache_misses = cache.nbytes, cache.hits, cache.misses
        pulse.cache_tokens_saved, pulse.active_bytes = cache.tokens_saved, mx.get_active_memory()

    def rest(self) -> None:
        """Nothing is due: give freed memory back, and say that silence is no symptom from here on."""
        mx.clear_cache()
        self._publish()
        self.pulse.rest()

    def close(self) -> None:
        self.prefixes.close()

    # -- prefill ---------------------------------------------------------------------------------

    def _prefill(self) -> None:
        """One chunk of the prompt whose turn it is; a finished prompt joins the batch."""
        if not self.scheduler.prefills:
            return
        job = self.scheduler.next_prefill()
        try:
            self._advance(job)
            if job.remaining <= 0:
                assert job.layers is not None
                self.batch.join([row for row in job.rows if not row.ended], job.layers)
                self.scheduler.prefills.remove(job)
        except Exception as error:
            self._note(error)
            self.scheduler.prefills.remove(job)
            for row in job.rows:
                self._fail(row)

    def _advance(self, job: Prefill) -> None:
        if job.layers is None:
            self.prefixes.begin(job)
        begun = time.monotonic()
        fed = job.advance(self.model.network, self.pace.chunk(alone=not self.batch.rows))
        self.pace.prefilled(fed, time.monotonic() - begun)
        self.pulse.tick()
        self.prefixes.after_chunk(job)
        if job.remaining > 0:
            self.outbox.append(Progress(job.rows[0].request.id, done=job.done, total=len(job.ids) - 1))

    # -- decode ----------------------------------------------------------------------------------

    def _decode(self, undisturbed: bool) -> None:
        """One step. `undisturbed`: no chunk ran beside it, so its duration is that of a step alone."""
        if self.batch.idle:
            return
        begun = time.monotonic()
        try:
            self.outbox += self.batch.step()
        except Exception as error:
            self._note(error)
            self._recover()
        if undisturbed:
            self.pace.stepped(time.monotonic() - begun)
        self.pulse.steps += 1
        self.pulse.tick()
        if self.pulse.steps % CLEAR_CACHE_EVERY == 0:
            mx.clear_cache()

    def _recover(self) -> None:
        """The step's caches are lost. Find the row that broke it by trying each alone; the others go on."""
        suspects = self.batch.abandon()
        mx.clear_cache()
        innocent, guilty = put_rows_on_trial(suspects, self._new_batch, self.pace.largest, self.pulse.tick)
        for row, error in guilty:
            self._note(error)
            self._fail(row)
        for row in reversed(innocent):
            self.scheduler.resume(row)

    def _fail(self, row: Sequence) -> None:
        if not row.ended:
            row.ended = True
            self.outbox.append(Failure(row.request.id, "executor_failed", FAILED, row.choice))

    def _note(self, error: Exception) -> None:
        """As text: the exception itself holds frames that hold arrays, which must not leave this thread."""
        self.pulse.last_error = one_line(error)


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
