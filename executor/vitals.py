"""Truthful health: what the executor's own work says about it. Reads plain values, so it answers while a step hangs.

Runs on the event loop.
"""

import time

from .health import Health, State
from .inbox import Inbox
from .life import Life
from .pulse import Pulse


def examine(life: Life, *, draining: bool, live: int, oldest: float | None) -> Health:
    """One reading. `live`: requests that wait or run. `oldest`: when the first of them came (`time.monotonic`)."""
    pulse, now = life.pulse, time.monotonic()
    state, reason = _state(life, draining, now)
    return Health(
        state=state,
        reason=reason,
        last_step_age_s=now - pulse.last_tick,
        oldest_job_age_s=None if oldest is None else now - oldest,
        queue_depth=max(0, live - pulse.running),
        running=pulse.running,
        generation=pulse.generation,
        steps=pulse.steps,
        last_error=pulse.last_error,
        canary=pulse.canary,
        thread=pulse.thread,
        thread_id=pulse.thread_id,
        stream=pulse.stream,
        device=pulse.device,
        seed_state=pulse.seed_state,
        cache_bytes=pulse.cache_bytes,
        cache_hits=pulse.cache_hits,
        cache_misses=pulse.cache_misses,
        cache_tokens_saved=pulse.cache_tokens_saved,
        active_bytes=pulse.active_bytes,
        kv_bytes=pulse.kv_bytes,
    )


def _state(life: Life, draining: bool, now: float) -> tuple[State, str | None]:
    if life.failed:
        return "failed", life.failed
    if draining:
        return ("draining", "shutting down") if life.alive else ("stopped", "shut down")
    if not life.alive:
        return "dead", life.pulse.last_error or "the executor thread has ended"
    settings = life.settings
    silence = silent_for(life.pulse, life.inbox, now)
    if silence > (settings.stall_after if life.pulse.loaded else settings.load_stall_after):
        return "stalled", f"the executor has made no step for {silence:.1f} s although work is due"
    if not life.pulse.loaded:
        return "loading", "the model is loading"
    return "ready", None


def silent_for(pulse: Pulse, inbox: Inbox, now: float) -> float:
    """Seconds for which work has been due without a step; 0 where none is due: an idle worker is not stale."""
    waiting_since = inbox.oldest
    if pulse.busy:
        return now - pulse.last_tick
    if waiting_since is not None:
        return now - max(waiting_since, pulse.last_tick)
    return 0.0
