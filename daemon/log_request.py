"""What is known of one request while it goes on, and the one line and the figures that are left of it at its end.

Runs on the event loop.
"""

import logging
import time
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from .errors import ApiError
from .generation import Generation
from .job import Job
from .metrics import GENERATING, Clock, Metrics

log = logging.getLogger(__name__)
QUIET = ("/health", "/health/live", "/health/ready", "/health/deep", "/metrics")
UNKNOWN = "(unknown)"
_REFUSALS = ("loading", "overloaded", "draining", "stalled", "dead", "failed", "stopped")


@dataclass(slots=True)
class Record:
    """One request. endpoint: the route's path, never the client's own spelling. body: only where prompts may be logged.

    cut: the server ended the connection, not the client.
    """

    id: str
    method: str
    endpoint: str
    metrics: Metrics
    began: float = field(default_factory=time.monotonic)
    key: str | None = None
    job: Job | None = None
    generation: Generation | None = None
    clock: Clock | None = None
    error: ApiError | None = None
    body: str | None = None
    cut: bool = False

    def queue(self, job: Job) -> None:
        """The request is through the door."""
        self.job = job
        self.metrics.ignored(job.ignored)

    def run(self, generation: Generation) -> None:
        """The executor has taken it."""
        self.generation = generation
        self.metrics.queued(sum(len(ids) for ids in generation.job.prompts))

    def tick(self, choice: int, tokens: int) -> None:
        """A choice has grown by so many tokens."""
        if self.clock is None:
            self.clock = Clock(self.metrics, self.began)
        self.clock.tick(choice, tokens)

    def close(self, status: int | None) -> None:
        """The request is over. status: None when its client left before the answer was complete."""
        seconds = time.monotonic() - self.began
        outcome = self._outcome(status)
        usage = self.generation.usage() if self.generation else None
        self.metrics.ended(self.endpoint, outcome, seconds, self.clock is not None)
        if usage is not None:
            self.metrics.answer_length.observe(_count(usage["completion_tokens"]))
            self.metrics.cached_tokens.inc(_cached(usage))
        level = self._level(status, outcome)
        if log.isEnabledFor(level):
            log.log(level, "request", extra={"fields": self._fields(status, outcome, seconds, usage)})

    def _outcome(self, status: int | None) -> str:
        error = self.error
        if status is None:
            return "failed" if self.cut else "cancelled"
        if error is None:
            return "ok" if status < 400 else "failed"
        if error.status in (401, 403):
            return "denied"
        if error.status < 500:
            return "client_error"
        if error.code == "deadline_exceeded":
            return "timeout"
        return "refused" if self.generation is None and error.code in _REFUSALS else "failed"

    def _level(self, status: int | None, outcome: str) -> int:
        """Probes come every few seconds and say nothing new; what generates is always worth its line."""
        if self.endpoint in QUIET:
            return logging.DEBUG
        if outcome in ("failed", "timeout", "refused"):
            return logging.WARNING
        return logging.INFO if self.endpoint in GENERATING or outcome != "ok" else logging.DEBUG

    def _fields(
        self, status: int | None, outcome: str, seconds: float, usage: dict[str, object] | None
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "id": self.id,
            "method": self.method,
            "endpoint": self.endpoint,
            "status": status,
            "outcome": outcome,
            "code": self.error.code if self.error else None,
            "param": self.error.param if self.error else None,
            "key": self.key,
            "duration_s": round(seconds, 4),
        }
        if self.job is not None:
            fields |= _job_fields(self.job)
        if usage is not None:
            fields |= {
                "prompt_tokens": usage["prompt_tokens"],
                "cached_tokens": _cached(usage),
                "completion_tokens": usage["completion_tokens"],
            }
        return fields | self._speed() | {"body": self.body}

    def _speed(self) -> dict[str, float]:
        """Tokens a second are those of the whole answer after its first moment, all choices together."""
        clock = self.clock
        if clock is None or clock.first is None or clock.last is None:
            return {}
        speed = {"ttft_s": round(clock.first - self.began, 4)}
        if clock.last > clock.first:
            speed["tokens_per_s"] = round(clock.later / (clock.last - clock.first), 2)
        return speed


def _job_fields(job: Job) -> dict[str, Any]:
    return {
        "answer": job.id,
        "model": job.model,
        "adapter": getattr(job, "adapter", None),
        "stream": job.wishes.stream,
        "choices": job.size,
        "seed": job.seed,
        "ignored": ",".join(name[:64] for name in job.ignored[:32]) or None,
    }


def _count(value: object) -> int:
    assert isinstance(value, int)
    return value


def _cached(usage: dict[str, object]) -> int:
    details = usage["prompt_tokens_details"]
    assert isinstance(details, dict)
    return _count(details["cached_tokens"])


RECORD = web.RequestKey("record", Record)
