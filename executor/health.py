"""What the executor says of itself: state, ages, counts. Plain values, safe to read from any thread."""

from dataclasses import dataclass
from typing import Literal

State = Literal["loading", "ready", "stalled", "dead", "failed", "draining", "stopped"]


@dataclass(frozen=True, slots=True)
class Health:
    """One reading of the executor. Ages are seconds; `ready` is the whole truth that probes go by."""

    state: State
    reason: str | None
    last_step_age_s: float | None
    oldest_job_age_s: float | None
    queue_depth: int
    running: int
    generation: int
    steps: int
    last_error: str | None
    canary: str | None
    thread: str | None
    thread_id: int | None
    stream: str | None
    device: str | None
    seed_state: str | None
    cache_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_tokens_saved: int = 0
    active_bytes: int = 0
    kv_bytes: int = 0

    @property
    def ready(self) -> bool:
        return self.state == "ready"
