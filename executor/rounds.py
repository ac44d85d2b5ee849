"""The work of the executor thread, one round after another: admit, a prefill chunk, a decode step.

Runs on the executor thread only. What a request does wrong ends that request; what a step does wrong is sorted out
row by row; whatever else escapes from here ends the thread.
"""

import time
from functools import partial

import mlx.core as mx

from ..lora.errors import UnknownAdapter
from .adapters import Adapters
from .batch import Batch
from .model import LoadedModel
from .pace import Pace
from .prefill import Prefill
from .prefix_keeper import PrefixKeeper
from .pulse import Pulse
from .recovery import put_rows_on_trial
from .request import (
    AdapterReply,
    Cancel,
    Command,
    Event,
    Failure,
    FailureKind,
    LoadAdapter,
    Progress,
    Request,
    Stop,
    UnloadAdapter,
)
from .scheduler import Scheduler, open_prefill
from .sequence import Sequence
from .settings import EngineSettings

FAILED = "the executor failed on this request; nothing else was affected"
CLEAR_CACHE_EVERY = 512  # steps: freed buffers go back to the system now and then, not on every step


class Rounds:
    """The rows of one life of the thread. `outbox` fills with news that the worker flushes after each round."""

    def __init__(self, model: LoadedModel, settings: EngineSettings, pulse: Pulse) -> None:
        self.model = model
        self.pulse = pulse
        self.outbox: list[Event | AdapterReply] = []
        self.stopping = False
        self.adapters = Adapters(model.bank)
        merged = model.facts.merged.content_hash if model.facts.merged else ""
        kv_type = f"{model.facts.dtype} {settings.kv_bits} {merged}"
        self.prefixes = PrefixKeeper(settings, kv_type, self.adapters.identity, model.new_layers, self._note)
        self.batch = Batch(model, self.prefixes.on_leave)
        self.scheduler = Scheduler(settings.max_batch if model.facts.batched else 1)
        self.pace = Pace(settings.prefill_chunk)

    @property
    def idle(self) -> bool:
        return self.scheduler.idle and self.batch.idle and not self.prefixes.cache.unsaved

    def obey(self, command: Command) -> None:
        match command:
            case Request(probe=True):
                self._probe(command)
            case Request():
                self.scheduler.add(command)
            case Cancel(id=request, choice=choice):
                self.scheduler.cancel(request, choice)
                self.batch.cancel(request, choice)
            case LoadAdapter():
                self.outbox.append(self.adapters.load(command))
            case UnloadAdapter():
                self.outbox.append(self.adapters.unload(command))
            case Stop():
                self.stopping = True

    def turn(self) -> None:
        """One round. Ticks the pulse for each piece of work done."""
        self.pulse.wake()
        self.outbox += self.scheduler.admit(len(self.batch.rows))
        undisturbed = not self.scheduler.prefills
        self._prefill()
        self._decode(undisturbed)
        self.adapters.release(self.batch.computed)
        self.prefixes.save_some()
        self._publish()

    def _publish(self) -> None:
        """The figures that others may read."""
        pulse, cache = self.pulse, self.prefixes.cache
        pulse.running, pulse.waiting = len(self.batch.rows), len(self.scheduler.waiting)
        pulse.cache_bytes, pulse.cache_hits, pulse.cache_misses = cache.nbytes, cache.hits, cache.misses
        pulse.cache_tokens_saved, pulse.active_bytes = cache.tokens_saved, mx.get_active_memory()
        facts = self.model.facts
        pulse.kv_bytes = sum(facts.row_bytes + row.fed_count * facts.token_bytes for row in self.batch.rows)

    def rest(self) -> None:
        """Nothing is due: give freed memory back, and say that silence is no symptom from here on."""
        mx.clear_cache()
        self._publish()
        self.pulse.rest()

    def close(self) -> None:
        """Leave what outlives these rounds in order: unwritten prefixes, and adapters that nobody holds any more."""
        self.adapters.release_all()
        self.prefixes.close()

    def _probe(self, request: Request) -> None:
        """Health's own request: a sampled draw at once, in a batch of its own, whatever else is running."""
        try:
            job = open_prefill(request)
            job.begin(self.model.new_layers(), 0)
            assert job.layers is not None
            trial = Batch(self.model)
            trial.join(job.rows, job.layers)
            self.outbox += [*trial.step(), *trial.step()]
        except Exception as error:
            self._note(error)
            self.outbox.append(Failure(request.id, "executor_failed", FAILED))
        self.pulse.steps += 1
        self.pulse.tick()

    # -- prefill ---------------------------------------------------------------------------------

    def _prefill(self) -> None:
        """A round's worth of prompt ids, from the prompts whose turn it is; finished prompts join the batch."""
        left = self.pace.chunk(alone=not self.batch.rows)
        while left > 0 and self.scheduler.prefills:
            left -= max(1, self._feed(self.scheduler.next_prefill(), left))

    def _feed(self, job: Prefill, most: int) -> int:
        """Feed up to `most` ids of one prompt; returns how many. What goes wrong here is this prompt's alone."""
        fed = 0
        try:
            fed = self._advance(job, most)
        except UnknownAdapter as error:
            self._drop_prefill(job, "invalid", error.message)
        except Exception as error:
            self._note(error)
            self._drop_prefill(job, "executor_failed", FAILED)
        else:
            if job.remaining <= 0:
                self._join(job)
        return fed

    def _join(self, job: Prefill) -> None:
        """A join that fails may leave the batch's caches half extended: the other rows get theirs anew."""
        assert job.layers is not None
        try:
            self.batch.join([row for row in job.rows if not row.ended], job.layers)
            self.scheduler.prefills.remove(job)
        except Exception as error:
            self._note(error)
            self._drop_prefill(job, "executor_failed", FAILED)
            self._recover()

    def _drop_prefill(self, job: Prefill, kind: FailureKind, message: str) -> None:
        self.scheduler.prefills.remove(job)
        for row in job.rows:
            self._fail(row, kind, message)

    def _advance(self, job: Prefill, most: int) -> int:
        if job.layers is None:
            for row in job.rows:
                self.adapters.hold(row)
            self.prefixes.begin(job)
            self._note_wait(job)
        begun = time.monotonic()
        fed = job.advance(self.model, most)
        taken = time.monotonic() - begun
        self.pace.prefilled(fed, taken)
        if fed:
            self.pulse.tallies.prefill_tokens.add(fed)
            self.pulse.tallies.prefill_seconds.add(taken)
        self.pulse.tick()
        self.prefixes.after_chunk(job)
        if job.remaining > 0:
            self.outbox.append(Progress(job.rows[0].request.id, done=job.done, total=len(job.ids) - 1))
        return fed

    def _note_wait(self, job: Prefill) -> None:
        """A row that lost its caches has waited before; only its first wait is a queue's."""
        if not job.rows[0].generated:
            self.pulse.tallies.queue_seconds.add(time.monotonic() - job.rows[0].request.asked)

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
        taken = time.monotonic() - begun
        if undisturbed:
            self.pace.stepped(taken)
        if self.batch.flight is not None:
            self.pulse.tallies.decode_rows.add(len(self.batch.flight.rows))
            self.pulse.tallies.decode_seconds.add(taken)
        self.pulse.steps += 1
        self.pulse.tick()
        if self.pulse.steps % CLEAR_CACHE_EVERY == 0:
            mx.clear_cache()

    def _recover(self) -> None:
        """The step's caches are lost. Find the row that broke it by trying each alone; the others go on."""
        suspects = self.batch.abandon()
        mx.clear_cache()
        innocent, guilty = put_rows_on_trial(suspects, partial(Batch, self.model), self.pace.largest, self.pulse.tick)
        for row, error in guilty:
            self._note(error)
            self._fail(row, "executor_failed", FAILED)
        for row in reversed(innocent):
            self.scheduler.resume(row)

    def _fail(self, row: Sequence, kind: FailureKind, message: str) -> None:
        if not row.ended:
            row.ended = True
            self.outbox.append(Failure(row.request.id, kind, message, row.choice))

    def _note(self, error: Exception) -> None:
        """As text: the exception itself holds frames that hold arrays, which must not leave this thread."""
        self.pulse.last_error = one_line(error)


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
