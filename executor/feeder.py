"""The prefill side of a round: prompts are fed by turns within a budget, and join the batch when they are through.

Runs on the executor thread only.
"""

import time

from ..lora.errors import UnknownAdapter
from .adapters import Adapters
from .batch import Batch
from .cohorts import Cohorts
from .model import LoadedModel
from .news import FAILED, News
from .pace import Pace
from .prefill import Prefill
from .prefix_keeper import PrefixKeeper
from .pulse import Pulse
from .request import FailureKind, Progress
from .scheduler import Scheduler


class Feeder:
    """Moves prompts from the scheduler into the batch. What goes wrong with one of them is that prompt's alone."""

    def __init__(
        self, model: LoadedModel, cohorts: Cohorts, scheduler: Scheduler, adapters: Adapters, prefixes: PrefixKeeper,
        pace: Pace, pulse: Pulse, news: News,
    ) -> None:  # fmt: skip
        self.model = model
        self.cohorts = cohorts
        self.scheduler = scheduler
        self.adapters = adapters
        self.prefixes = prefixes
        self.pace = pace
        self.pulse = pulse
        self.news = news

    def feed(self) -> Batch | None:
        """A round's worth of prompt ids. Returns a batch that a failed join may have left half extended."""
        left = self.pace.chunk(alone=self.cohorts.idle)
        while left > 0 and self.scheduler.prefills:
            job = self.scheduler.next_prefill()
            left -= max(1, self._feed(job, left))
            if job.remaining <= 0 and not job.abandoned and (broken := self._join(job)):
                return broken
        return None

    def _feed(self, job: Prefill, most: int) -> int:
        """Feed up to `most` ids of one prompt; returns how many."""
        try:
            return self._advance(job, most)
        except UnknownAdapter as error:
            self._drop(job, "invalid", error.message)
        except Exception as error:
            self.news.note(error)
            self._drop(job)
        return 0

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
            self.news.outbox.append(Progress(job.rows[0].request.id, done=job.done, total=len(job.ids) - 1))
        return fed

    def _note_wait(self, job: Prefill) -> None:
        """A row that lost its caches has waited before; only its first wait is a queue's."""
        if not job.rows[0].generated:
            self.pulse.tallies.queue_seconds.add(time.monotonic() - job.rows[0].request.asked)

    def _join(self, job: Prefill) -> Batch | None:
        """Returns the batch when the join failed in it."""
        assert job.layers is not None
        rows = [row for row in job.rows if not row.ended]
        batch = self.cohorts.place(rows)
        try:
            batch.join(rows, job.layers)
        except Exception as error:
            self.news.note(error)
            self._drop(job)
            return batch
        self.scheduler.prefills.remove(job)
        return None

    def _drop(self, job: Prefill, kind: FailureKind = "executor_failed", message: str = FAILED) -> None:
        self.scheduler.prefills.remove(job)
        for row in job.rows:
            self.news.fail(row, kind, message)
