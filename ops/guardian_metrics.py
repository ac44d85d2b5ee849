"""The guardian's own figures, in Prometheus' units: what it saw, how long its probes took, what it did."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .guardian_probe import Reading
from .guardian_verdict import Verdict

BUCKETS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 20, 60)


class GuardianMetrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._visits = self._counter("soloist_guardian_visits", "Visits by what they found.", "verdict")
        self._actions = self._counter(
            "soloist_guardian_actions", "Commands and webhooks by outcome.", "kind", "outcome"
        )
        self._misses = self._gauge("soloist_guardian_misses", "Misses in a row.")
        self._red = self._gauge("soloist_guardian_red", "1 from the miss that calls for an action until it is well.")
        self._step_age = self._gauge("soloist_guardian_last_step_age_seconds", "Age of the executor's last step.")
        self._probes = Histogram(
            "soloist_guardian_probe_seconds", "Time that a probe took.", ["instance", "probe"], buckets=BUCKETS,
            registry=self.registry,
        )  # fmt: skip

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(name, help, ["instance", *labels], registry=self.registry)

    def _gauge(self, name: str, help: str) -> Gauge:
        return Gauge(name, help, ["instance"], registry=self.registry)

    def visit(self, name: str, verdict: Verdict, reading: Reading, misses: int, red: bool) -> None:
        self._visits.labels(name, verdict.word).inc()
        self._misses.labels(name).set(misses)
        self._red.labels(name).set(red)
        self._step_age.labels(name).set((reading.health or {}).get("last_step_age_s") or 0.0)
        for probe, found in reading.probes().items():
            self._probes.labels(name, probe).observe(found.seconds)

    def action(self, name: str, kind: str, outcome: str) -> None:
        self._actions.labels(name, kind, outcome).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)
