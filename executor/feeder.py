"""The prefill side of a round: prompts are fed by turns within a budget, and join the batch when they are through.

Runs on the executor thread only.
"""

import time
from collections.abc import Callable

from ..lora.errors import UnknownAdapter
from .adapters import Adapters
from .batch import Batch
from .cohorts import Cohorts
from .model import LoadedModel
from .news import FAILED, News
from .pace import Pace
from .prefill import Prefill, advance_together
from .prefix_keeper import PrefixKeeper
from .pulse import Pulse
from .request import FailureKind, Progress
from .scheduler import Scheduler

SHORT = 64  # ids: prompts with no more than this left are fed together
BURST_TOKENS = 4  # a row that has drawn fewer has just begun


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
        if through := [job for job in self.scheduler.prefills if job.through]:
            return self._join(through[:1])
        hurry = self._nobody_waits
        left = self.pace.chunk(alone=hurry)
        while left > 0 and self.scheduler.prefills:
            jobs = self._short_ones(left) or [self.scheduler.next_prefill()]
            fed = self._feed_together(jobs) if len(jobs) > 1 else self._feed(jobs[0], left)
            left -= max(1, fed)
            if not (through := [job for job in jobs if job.through]):
                continue
            if fed and not hurry:
                return None  # a join copies every row: beside running ones it gets a round without a chunk
            if broken := self._join(through):
                return broken
        return None

    @property
    def _nobody_waits(self) -> bool:
        """No row is decoding, or only such as came with those that are still to be read: a burst is read together."""
        return all(len(row.generated) < BURST_TOKENS for row in self.cohorts.rows)

    def _short_ones(self, most: int) -> list[Prefill]:
        """Prompts with so little left that one forward takes them all: it reads the weights once, not once each."""
        group: list[Prefill] = []
        if not (self.prefixes.cache.by_blocks and self.model.facts.batched):
            return group
        for job in list(self.scheduler.prefills):
            if job.apart or len(job.ids) - 1 - job.done > SHORT or not self._begin(job):
                continue
            longest = max(other.remaining for other in (*group, job))
            if longest * (len(group) + 1) > most:
                break
            group.append(job)
        return group if len(group) > 1 else []

    def _begin(self, job: Prefill) -> bool:
        """Give a prompt its adapter and its caches, if it has none yet. False: it was refused."""
        if job.layers is not None:
            return True
        try:
            for row in job.rows:
                self.adapters.hold(row)
        except UnknownAdapter as error:
            self._drop(job, "invalid", error.message)
            return False
        self.prefixes.begin(job)
        self._note_wait(job)
        return True

    def _feed_together(self, jobs: list[Prefill]) -> int:
        """What goes wrong in company is tried again by each alone."""
        try:
            return self._timed(jobs, lambda: advance_together(self.model, jobs))
        except Exception as error:
            self.news.note(error)
            for job in jobs:
                job.apart = True
            return 0

    def _feed(self, job: Prefill, most: int) -> int:
        """Feed up to `most` ids of one prompt; returns how many. What goes wrong ends that prompt."""
        if not self._begin(job):
            return 0
        try:
            return self._timed([job], lambda: job.advance(self.model, most))
        except Exception as error:
            self.news.note(error)
            self._drop(job)
            return 0

    def _timed(self, jobs: list[Prefill], feed: Callable[[], int]) -> int:
        """Feed, measure, and keep what it brought."""
        begun = time.monotonic()
        fed = feed()
        taken = time.monotonic() - begun
        self.pace.prefilled(fed, taken)
        if fed:
            self.pulse.tallies.prefill_tokens.add(fed)
            self.pulse.tallies.prefill_seconds.add(taken)
        self.pulse.tick()
        for job in jobs:
            self.prefixes.after_chunk(job)
            if job.remaining > 0:
                self.news.outbox.append(Progress(job.rows[0].request.id, done=job.done, total=len(job.ids) - 1))
        return fed

    def _note_wait(self, job: Prefill) -> None:
        """A row that lost its caches has waited before; only its first wait is a queue's."""
        if not job.rows[0].generated:
            self.pulse.tallies.queue_seconds.add(time.monotonic() - job.rows[0].request.asked)

    def _join(self, jobs: list[Prefill]) -> Batch | None:
        """Returns the batch when the join failed in it: one prompt is dropped then, several are tried apart."""
        rows, layers = [], []
        for job in jobs:
            assert job.layers is not None
            alive = [row for row in job.rows if not row.ended]
            rows += alive
            layers += [job.layers] * len(alive)
        batch = self.cohorts.place(rows)
        try:
            batch.join(rows, layers)
        except Exception as error:
            self.news.note(error)
            for job in jobs:
                job.apart = True
            if len(jobs) == 1:
                self._drop(jobs[0])
            return batch
        for job in jobs:
            self.scheduler.prefills.remove(job)
        return None

    def _drop(self, job: Prefill, kind: FailureKind = "executor_failed", message: str = FAILED) -> None:
        self.scheduler.prefills.remove(job)
        for row in job.rows:
            self.news.fail(row, kind, message)
