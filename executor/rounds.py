"""The work of the executor thread, one round after another: admit, a prefill chunk, a decode step.

Runs on the executor thread only. What a request does wrong ends that request; what a step does wrong is sorted out
row by row; whatever else escapes from here ends the thread.
"""

import time
from functools import partial

import mlx.core as mx

from .adapters import Adapters
from .batch import Batch
from .cohorts import Cohorts
from .feeder import Feeder
from .model import LoadedModel
from .news import FAILED, News
from .pace import Pace
from .prefix_keeper import PrefixKeeper
from .pulse import Pulse
from .recovery import put_rows_on_trial
from .request import (
    Cancel,
    Command,
    Failure,
    LoadAdapter,
    Request,
    Stop,
    UnloadAdapter,
)
from .scheduler import Scheduler, open_prefill
from .settings import EngineSettings

TRIAL_CHUNK = 256  # ids: a trial is prefilled in pieces too, so that it keeps a heartbeat
MOST_SETBACKS = 3  # steps lost without a token in between, by a row that does nothing wrong alone
CLEAR_CACHE_EVERY = 512  # steps: freed buffers go back to the system now and then, not on every step


class Rounds:
    """The rows of one life of the thread. `news` fills with events that the worker flushes after each round."""

    def __init__(self, model: LoadedModel, settings: EngineSettings, pulse: Pulse) -> None:
        self.model = model
        self.pulse = pulse
        self.news = News(pulse)
        self.stopping = False
        self.adapters = Adapters(model.bank)
        merged = model.facts.merged.content_hash if model.facts.merged else ""
        kv_type = f"{model.facts.dtype} {settings.kv_bits} {merged}"
        self.prefixes = PrefixKeeper(settings, kv_type, self.adapters.identity, model.new_layers, self.news.note)
        self.cohorts = Cohorts(model, self.prefixes.on_leave)
        self.scheduler = Scheduler(settings.max_batch if model.facts.batched else 1)
        self.pace = Pace(settings.prefill_chunk)
        self.feeder = Feeder(
            model, self.cohorts, self.scheduler, self.adapters, self.prefixes, self.pace, pulse, self.news
        )

    @property
    def idle(self) -> bool:
        return self.scheduler.idle and self.cohorts.idle and not self.prefixes.cache.unsaved

    def obey(self, command: Command) -> None:
        match command:
            case Request(probe=True):
                self._probe(command)
            case Request():
                self.scheduler.add(command)
            case Cancel(id=request, choice=choice):
                self.scheduler.cancel(request, choice)
                self.cohorts.cancel(request, choice)
            case LoadAdapter():
                self.news.outbox.append(self.adapters.load(command))
            case UnloadAdapter():
                self.news.outbox.append(self.adapters.unload(command))
            case Stop():
                self.stopping = True

    def turn(self) -> None:
        """One round. Ticks the pulse for each piece of work done."""
        self.pulse.wake()
        self.news.outbox += self.scheduler.admit(len(self.cohorts.rows))
        undisturbed = not self.scheduler.prefills
        if broken := self.feeder.feed():
            self._recover(broken)
        self._decode(undisturbed)
        self.adapters.release(self.cohorts.computed)
        self.prefixes.save_some()
        self._publish()

    def _publish(self) -> None:
        """The figures that others may read."""
        pulse, cache = self.pulse, self.prefixes.cache
        pulse.running, pulse.waiting = len(self.cohorts.rows), len(self.scheduler.waiting)
        pulse.cache_bytes, pulse.cache_hits, pulse.cache_misses = cache.nbytes, cache.hits, cache.misses
        pulse.cache_tokens_saved, pulse.active_bytes = cache.tokens_saved, mx.get_active_memory()
        facts = self.model.facts
        pulse.kv_bytes = sum(facts.row_bytes + row.fed_count * facts.token_bytes for row in self.cohorts.rows)

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
            trial.join(job.rows, [job.layers])
            self.news.outbox += [*trial.step(), *trial.step()]
        except Exception as error:
            self.news.note(error)
            self.news.outbox.append(Failure(request.id, "executor_failed", FAILED))
        self.pulse.steps += 1
        self.pulse.tick()

    # -- decode ----------------------------------------------------------------------------------

    def _decode(self, undisturbed: bool) -> None:
        """One step of every row. `undisturbed`: no chunk ran beside it, so its duration is that of a step alone."""
        if self.cohorts.idle:
            return
        begun = time.monotonic()
        for batch in self.cohorts.batches:
            try:
                self.news.outbox += batch.step()
            except Exception as error:
                self.news.note(error)
                self._recover(batch)
            self.pulse.tick()
        taken = time.monotonic() - begun
        if undisturbed:
            self.pace.stepped(taken)
        for rows in self.cohorts.in_flight:
            self.pulse.tallies.decode_rows.add(rows)
        self.pulse.tallies.decode_seconds.add(taken)
        self.pulse.steps += 1
        self.pulse.tick()
        if self.pulse.steps % CLEAR_CACHE_EVERY == 0:
            mx.clear_cache()

    def _recover(self, broken: Batch) -> None:
        """The step's caches are lost. Find the row that broke it by trying each alone; the others go on."""
        self.news.outbox += broken.take_untold()
        suspects = broken.abandon()
        mx.clear_cache()
        innocent, guilty = put_rows_on_trial(suspects, partial(Batch, self.model), TRIAL_CHUNK, self.pulse.tick)
        for row, error in guilty:
            self.news.note(error)
            self.news.fail(row)
        for row in reversed(innocent):
            row.setbacks += 1
            if row.setbacks > MOST_SETBACKS:
                self.news.fail(row)
            else:
                self.scheduler.resume(row)
