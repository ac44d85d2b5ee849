"""What the event loop counts of requests and tokens, in a registry that belongs to one daemon.

Names and units follow Prometheus' practice: base units, `_total` for counters. Runs on the event loop.
"""

import time

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector

OUTCOMES = ("ok", "client_error", "denied", "refused", "failed", "timeout", "cancelled")
GENERATING = ("/v1/chat/completions", "/v1/completions")
MOST_NAMES = 64  # of ignored fields; a client that invents names cannot fill the page
OTHER = "(other)"

_LATENCY = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200)
_BETWEEN = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5)
_TOKENS = (1, 16, 64, 256, 1024, 4096, 16384, 65536, 262144)


class Metrics:
    """The figures. Children of what is touched for every token are bound once."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        self.first_token = self._histogram(
            "soloist_time_to_first_token_seconds", "From the request's headers to its first token.", _LATENCY
        )
        self.between_tokens = self._histogram(
            "soloist_inter_token_latency_seconds", "Time between two tokens of a choice as they reach its reply.",
            _BETWEEN,
        )  # fmt: skip
        self.duration = self._histogram(
            "soloist_request_duration_seconds", "From a generating request's headers to the end of its answer.",
            _LATENCY,
        )  # fmt: skip
        self.prompt_length = self._histogram("soloist_request_prompt_tokens", "Prompt tokens of a request.", _TOKENS)
        self.answer_length = self._histogram("soloist_request_generated_tokens", "Tokens of an answer.", _TOKENS)
        self.prompt_tokens = self._counter("soloist_prompt_tokens", "Prompt tokens of queued requests.")
        self.cached_tokens = self._counter(
            "soloist_cached_prompt_tokens", "Prompt tokens of finished requests that came from the prefix cache."
        )
        self.generated_tokens = self._counter("soloist_generated_tokens", "Tokens generated, end tokens included.")
        self._requests = self._counter("soloist_requests", "Requests by what became of them.", "endpoint", "outcome")
        self._cancellations = self._counter(
            "soloist_cancellations", "Clients that left before their answer was complete.", "phase"
        )
        self._ignored = self._counter("soloist_ignored_fields", "Request fields that nobody has heard of.", "field")
        self._names: set[str] = set()
        for phase in ("before_first_token", "after_first_token"):
            self._cancellations.labels(phase)
        for endpoint in GENERATING:
            for outcome in OUTCOMES:
                self._requests.labels(endpoint, outcome)  # so that a first failure is seen as a rise from 0

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, help, buckets=buckets, registry=self.registry)

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(name, help, labels, registry=self.registry)

    def ended(self, endpoint: str, outcome: str, seconds: float, began_answer: bool) -> None:
        """A request is over. began_answer: at least one token had been generated."""
        self._requests.labels(endpoint, outcome).inc()
        if endpoint in GENERATING:
            self.duration.observe(seconds)
            if outcome == "cancelled":
                self._cancellations.labels("after_first_token" if began_answer else "before_first_token").inc()

    def queued(self, prompt_tokens: int) -> None:
        self.prompt_tokens.inc(prompt_tokens)
        self.prompt_length.observe(prompt_tokens)

    def ignored(self, names: tuple[str, ...]) -> None:
        for name in names:
            short = name[:64]
            if short not in self._names and len(self._names) >= MOST_NAMES:
                short = OTHER
            self._names.add(short)
            self._ignored.labels(short).inc()


class Clock:
    """When the tokens of one request came. `first` and `last` are `time.monotonic` seconds, None before any.

    later: tokens that came after the first moment.
    """

    __slots__ = ("_last", "_metrics", "began", "first", "last", "later")

    def __init__(self, metrics: Metrics, began: float) -> None:
        self.began = began
        self.first: float | None = None
        self.last: float | None = None
        self.later = 0
        self._last: dict[int, float] = {}
        self._metrics = metrics

    def tick(self, choice: int, tokens: int) -> None:
        """A choice has grown. Tokens that came together share the time that they took."""
        if not tokens:
            return
        now = self.last = time.monotonic()
        before = self._last.get(choice)
        self._last[choice] = now
        if before is not None:
            self._metrics.between_tokens.observe((now - before) / tokens)
        if self.first is None:
            self.first = now
            self._metrics.first_token.observe(now - self.began)
        else:
            self.later += tokens
        self._metrics.generated_tokens.inc(tokens)
