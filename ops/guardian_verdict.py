"""From what a visit found to one word. The difference that matters most: wedged, which must be ended, and busy.

An instance that is busy ticks: its last step is young although a probe waits behind a long prefill. One whose last
step is older than the bound while work is due is wedged, whatever its listener says.
"""

from dataclasses import dataclass
from typing import Any, Literal

from .guardian_probe import Probe, Reading

Word = Literal[
    "well", "busy", "loading", "draining", "locked", "down", "frozen", "dead", "wedged", "hollow", "sick", "stuck"
]
MISSES: frozenset[Word] = frozenset({"down", "frozen", "dead", "wedged", "hollow", "sick", "stuck"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """word: see docs/operations.md. A miss counts towards an action."""

    word: Word
    reason: str

    @property
    def miss(self) -> bool:
        return self.word in MISSES


def judge(reading: Reading, stall_after: float) -> Verdict:
    """stall_after: seconds; the guardian's own bound, whatever the instance's is."""
    ready, health = reading.ready, reading.health
    if ready.outcome == "refused":
        return Verdict("down", "nothing listens, or the connection broke")
    if ready.outcome == "timeout":
        return Verdict("frozen", f"no answer about its health within {ready.seconds:.1f} s")
    if health is not None and (said := _by_state(health, stall_after)):
        return said
    if ready.outcome == "status" and ready.status != 404:
        return Verdict("sick", f"not ready: {_reason(ready)}")
    if ready.outcome == "hollow":
        return Verdict("hollow", "its health is 200 with nothing inside")
    return _by_tokens(reading, health, stall_after)


def _by_state(health: dict[str, Any], stall_after: float) -> Verdict | None:
    """What the instance says of its executor; None where only a token can tell."""
    state, reason = health["state"], str(health.get("reason") or "")
    match state:
        case "draining" | "stopped":
            return Verdict("draining", reason or "shutting down")
        case "loading":
            return Verdict("loading", reason or "the model is loading")
        case "dead" | "failed":
            return Verdict("dead", reason or "the executor has ended")
        case "stalled":
            return Verdict("wedged", reason or "the executor makes no step")
    age = health.get("last_step_age_s") or 0.0
    if _due(health) and age > stall_after:
        return Verdict("wedged", f"no step for {age:.1f} s although work is due")
    return None


def _by_tokens(reading: Reading, health: dict[str, Any] | None, stall_after: float) -> Verdict:
    for name, probe in reading.probes().items():
        if probe.ok or (name in ("ready", "deep") and probe.status == 404):  # not every server has these paths
            continue
        if probe.outcome == "hollow":
            return Verdict("hollow", f"the {name} probe got 200 with nothing inside")
        if probe.status in (401, 403):
            return Verdict("locked", f"the {name} probe was refused: give the guardian a key")
        if health is not None and ticks(health, stall_after) and _waited(probe):
            return Verdict("busy", f"the {name} probe waits behind work that goes on")
        if probe.outcome == "timeout":
            return Verdict("wedged", f"the {name} probe got nothing within {probe.seconds:.1f} s")
        return Verdict("sick", f"the {name} probe failed: {_reason(probe)}")
    return Verdict("well", "")


def ticks(health: dict[str, Any], stall_after: float) -> bool:
    """Work is under way, and its last step is young."""
    age = health.get("last_step_age_s")
    return _due(health) and isinstance(age, int | float) and age <= stall_after


def _due(health: dict[str, Any]) -> bool:
    return any(health.get(name) for name in ("queue_depth", "running", "answering"))


def _waited(probe: Probe) -> bool:
    """It ran out of time, or was sent away because others are served."""
    return probe.outcome == "timeout" or probe.status in (429, 503)


def _reason(probe: Probe) -> str:
    if probe.status is None:
        return "the connection broke"
    document = probe.document if isinstance(probe.document, dict) else {}
    error = document.get("error")
    said = document.get("reason") or (error.get("message") if isinstance(error, dict) else None)
    return f"{probe.status} {said or 'without a reason'}"
