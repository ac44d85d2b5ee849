"""GET /metrics: the daemon's own figures, and what the executor says of itself, read at the moment of the scrape.

Runs on the event loop; of the executor it reads plain values only, so it answers while a step hangs.
"""

import time
from collections.abc import Iterable, Iterator
from typing import get_args

from aiohttp import web
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from .. import __version__
from ..executor.health import Health, State
from ..executor.tally import Tallies, Tally
from .health import read_health
from .state import DAEMON, Daemon


async def show_metrics(request: web.Request) -> web.Response:
    """In the text format, or in OpenMetrics where the client asks for it."""
    encode, kind = choose_encoder(request.headers.get("Accept", ""))
    page = encode(_Page(request.app[DAEMON]))
    return web.Response(body=page, headers={"Content-Type": kind, "Cache-Control": "no-store"})


class _Page(Collector):
    """All families of one scrape."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def collect(self) -> Iterable[Metric]:
        for family in self._daemon.metrics.registry.collect():
            # When a counter came into being is a gauge in the text format: twice the lines, and nobody reads them.
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family
        yield from _daemon_families(self._daemon)
        health = self._daemon.health()
        yield from _gauges(health)
        yield from _counters(health)
        if self._daemon.engine is not None:
            yield from _histograms(self._daemon.engine.tallies)


def _daemon_families(daemon: Daemon) -> Iterator[Metric]:
    ready, document = read_health(daemon)
    yield GaugeMetricFamily("soloist_ready", "1 when the next request would be served.", float(ready))
    states = GaugeMetricFamily("soloist_state", "1 for the state that the daemon is in.", labels=["state"])
    for state in get_args(State):
        states.add_metric([state], float(state == document["state"]))
    yield states
    yield GaugeMetricFamily("soloist_answering_requests", "Requests whose answer is being made.", daemon.answering)
    started = time.time() - (time.monotonic() - daemon.started)
    yield GaugeMetricFamily("soloist_start_time_seconds", "When the daemon started, as Unix time.", started)
    yield GaugeMetricFamily("soloist_max_batch_rows", "Most rows that are decoded together.", daemon.config.max_batch)
    about = {"version": __version__, "model": document["model"] or "", "device": document["device"] or ""}
    yield InfoMetricFamily("soloist_build", "What is running.", about)
    if daemon.served is not None:
        weights = daemon.served.facts.weights_bytes
        yield GaugeMetricFamily("soloist_weights_bytes", "Memory of the model's weights.", weights)


def _gauges(health: Health) -> Iterator[Metric]:
    gauges = (
        ("queue_depth_requests", "Requests that wait for a row.", health.queue_depth),
        ("running_rows", "Rows that are being decoded.", health.running),
        ("last_step_age_seconds", "Age of the executor's last step; it grows while nothing is due.",
         health.last_step_age_s or 0.0),
        ("oldest_job_age_seconds", "Age of the oldest request that is not finished.", health.oldest_job_age_s or 0.0),
        ("executor_generation", "How many executor threads there have been.", health.generation),
        ("prefix_cache_bytes", "Memory of the states of prompts that may come again.", health.cache_bytes),
        ("kv_bytes", "Keys and values of the rows in decode.", health.kv_bytes),
        ("active_memory_bytes", "Memory that MLX holds arrays in.", health.active_bytes),
    )  # fmt: skip
    for name, help, value in gauges:
        yield GaugeMetricFamily(f"soloist_{name}", help, value)


def _counters(health: Health) -> Iterator[Metric]:
    counters = (
        ("executor_steps", "Decode steps of this executor thread.", health.steps),
        ("prefix_cache_hits", "Prompts whose beginning was found in the prefix cache.", health.cache_hits),
        ("prefix_cache_misses", "Prompts whose beginning was not.", health.cache_misses),
        ("prefix_cache_saved_tokens", "Prompt tokens that need not be computed again.", health.cache_tokens_saved),
    )
    for name, help, value in counters:
        yield CounterMetricFamily(f"soloist_{name}", help, value)


def _histograms(tallies: Tallies) -> Iterator[Metric]:
    histograms = (
        ("queue_wait_seconds", "From a request's arrival to the first work on it.", tallies.queue_seconds),
        ("prefill_batch_tokens", "Prompt tokens that were computed at once.", tallies.prefill_tokens),
        ("prefill_batch_seconds", "Time that these took.", tallies.prefill_seconds),
        ("decode_batch_rows", "Rows of a decode step.", tallies.decode_rows),
        ("decode_step_seconds", "Time that a decode step took.", tallies.decode_seconds),
    )
    for name, help, tally in histograms:
        yield HistogramMetricFamily(f"soloist_{name}", help, buckets=_buckets(tally), sum_value=tally.total)


def _buckets(tally: Tally) -> list[tuple[str, float]]:
    names = [*(str(float(bound)) for bound in tally.bounds), "+Inf"]
    return [(name, float(count)) for name, count in zip(names, tally.read(), strict=True)]
