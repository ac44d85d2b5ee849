"""What the executor thread lets others see: written by that thread alone, read by anyone, one plain value each."""

import time

from .tally import Tallies


class Pulse:
    """The heartbeat of one generation of the thread. Ticked by steps, never by a timer."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.opened = time.monotonic()
        self.last_tick = self.opened
        self.busy = True
        self.loaded = False
        self.steps = 0
        self.running = 0
        self.waiting = 0
        self.cache_bytes = 0
        self.cache_hits = 0
        self.cache_misses = 0
        self.cache_tokens_saved = 0
        self.active_bytes = 0
        self.kv_bytes = 0
        self.tallies = Tallies()
        self.last_error: str | None = None
        self.canary: str | None = None
        self.thread: str | None = None
        self.thread_id: int | None = None
        self.stream: str | None = None
        self.device: str | None = None
        self.seed_state: str | None = None

    def tick(self) -> None:
        """One piece of work was done: a weights file, a prefill chunk or a decode step."""
        self.last_tick = time.monotonic()

    def rest(self) -> None:
        """The thread is about to block on its inbox: from now on silence is not a symptom."""
        self.busy = False

    def wake(self) -> None:
        self.last_tick = time.monotonic()
        self.busy = True
