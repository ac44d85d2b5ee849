"""/metrics: every request counted once, under what became of it; a page that Prometheus' own checker accepts."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from http_faults import fail_after, slow_prefill
from http_server import CHAT, HI, PATIENCE, Server, post_bytes, serving
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families
from soloist.daemon.metrics import MOST_NAMES, OTHER, Clock, Metrics

Figures = dict[tuple[str, ...], float]


def figures(server: Server) -> Figures:
    """Samples by name and label values."""
    reply = server.get("/metrics", Authorization="")
    assert reply.status == 200
    families = text_string_to_metric_families(reply.body.decode())
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if "le" not in sample.labels
    }


def rise(server: Server, act: Callable[[], object]) -> Figures:
    """What an act changes. A request is counted when its handler ends, so the figures are read until they rest."""
    before = figures(server)
    act()
    end = time.monotonic() + PATIENCE
    while server.get("/health").json["answering"]:
        assert time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.05)
    after = figures(server)
    return {name: after[name] - before.get(name, 0.0) for name in after if after[name] != before.get(name, 0.0)}


def outcome(figures: Figures, endpoint: str = CHAT) -> dict[str, float]:
    """Requests of one endpoint by outcome."""
    return {name[2]: value for name, value in figures.items() if name[:2] == ("soloist_requests_total", endpoint)}


def test_the_page_passes_promtool(stop: Server) -> None:
    stop.chat(unheard_of=1)
    stop.chat(temperature=9)
    page = stop.get("/metrics").body
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_a_page_with_a_careless_name_does_not_pass_promtool() -> None:
    page = b"# HELP soloist_wait_ms x\n# TYPE soloist_wait_ms counter\nsoloist_wait_ms 1\n"
    assert subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False).returncode


def test_openmetrics_is_spoken_to_those_who_ask(stop: Server) -> None:
    reply = stop.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    assert len(list(openmetrics_families(reply.body.decode()))) > 30


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_counted_with_its_tokens_and_times(stop: Server, stream: bool) -> None:
    usage: list[dict[str, int]] = []

    def ask() -> None:
        if stream:
            events = stop.chat_events(n=2, stream_options={"include_usage": True})
            usage.append(events.chunks[-1]["usage"])
        else:
            usage.append(stop.chat(n=2).json["usage"])

    seen = rise(stop, ask)
    assert outcome(seen) == {"ok": 1}
    assert seen[("soloist_prompt_tokens_total",)] == usage[0]["prompt_tokens"]
    assert seen[("soloist_generated_tokens_total",)] == usage[0]["completion_tokens"]
    assert seen[("soloist_request_generated_tokens_sum",)] == usage[0]["completion_tokens"]
    for name in ("time_to_first_token_seconds", "request_duration_seconds", "queue_wait_seconds"):
        assert seen[(f"soloist_{name}_count",)] == 1
    assert 0 < seen[("soloist_time_to_first_token_seconds_sum",)] < seen[("soloist_request_duration_seconds_sum",)]
    assert seen[("soloist_decode_batch_rows_sum",)] >= usage[0]["completion_tokens"]
    assert seen[("soloist_inter_token_latency_seconds_count",)] > 0


def test_cached_prompt_tokens_are_counted(stop: Server) -> None:
    prompt = "once upon a time " * 40
    stop.complete(prompt, max_tokens=1)
    cached: list[int] = []
    seen = rise(stop, lambda: cached.append(
        stop.complete(prompt, max_tokens=1).json["usage"]["prompt_tokens_details"]["cached_tokens"]
    ))  # fmt: skip
    assert cached[0] > 0
    assert seen[("soloist_cached_prompt_tokens_total",)] == cached[0]
    assert seen[("soloist_prefix_cache_saved_tokens_total",)] == cached[0]
    assert seen[("soloist_prefix_cache_hits_total",)] == 1


def test_a_clients_fault_a_foreign_host_and_an_unknown_path_are_told_apart(stop: Server) -> None:
    def faults() -> None:
        stop.chat(temperature=9)
        stop.request("POST", CHAT, {"messages": HI}, Host="evil.example")
        stop.get("/v1/nope")

    seen = rise(stop, faults)
    assert outcome(seen) == {"client_error": 1, "denied": 1}
    assert outcome(seen, "(unknown)") == {"client_error": 1}


def test_an_executors_failure_is_counted_before_and_after_the_first_token(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(folders / "stop") as server:
        fail_after(monkeypatch, 3)
        seen = rise(server, lambda: (server.chat(), server.chat_events()))
        assert outcome(seen) == {"failed": 2}


def test_a_deadline_is_a_timeout(folders: Path) -> None:
    with serving(folders / "loop", request_timeout=0.2, max_context=200000) as server:
        assert outcome(rise(server, server.chat)) == {"timeout": 1}


def test_clients_that_leave_are_counted_by_how_far_they_got(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(folders / "loop") as server:
        seen = rise(server, lambda: server.events(CHAT, {"messages": HI}, first=3))
        assert outcome(seen) == {"cancelled": 1}
        assert seen[("soloist_cancellations_total", "after_first_token")] == 1
        slow_prefill(monkeypatch, 0.3)

        def leave_early() -> None:
            with server.connect() as raw:
                raw.sendall(post_bytes({"messages": HI}))
                while not server.get("/health").json["answering"]:
                    time.sleep(0.01)

        assert rise(server, leave_early)[("soloist_cancellations_total", "before_first_token")] == 1


def test_the_page_is_there_while_the_model_is_not(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from soloist.executor.worker import Worker

    real = Worker.open_thread
    monkeypatch.setattr(Worker, "open_thread", lambda self: (time.sleep(1.0), real(self))[1])
    with serving(folders / "stop", wait=False, api_key=("sk",)) as server:
        assert server.chat().status == 503
        seen = figures(server)
        assert outcome(seen)["refused"] == 1
        assert (seen[("soloist_ready",)], seen[("soloist_state", "loading")]) == (0, 1)
        while server.get("/health").status != 200:
            time.sleep(0.02)
        assert figures(server)[("soloist_ready",)] == 1


def test_gauges_follow_the_executor(loop: Server) -> None:
    with loop.connect() as raw:
        raw.sendall(post_bytes({"messages": HI, "stream": True}))
        while not (seen := figures(loop))[("soloist_running_rows",)]:
            time.sleep(0.01)
        time.sleep(0.1)
        seen = figures(loop)
        assert seen[("soloist_answering_requests",)] == 1 and seen[("soloist_oldest_job_age_seconds",)] > 0
        assert seen[("soloist_kv_bytes",)] > 0 and seen[("soloist_active_memory_bytes",)] > 0
        assert seen[("soloist_last_step_age_seconds",)] < 5 and seen[("soloist_executor_generation",)] == 1
    assert seen[("soloist_weights_bytes",)] > 0


def test_two_daemons_of_one_process_count_apart(stop: Server, dist: Server) -> None:
    before = figures(dist)
    stop.chat(max_tokens=1)
    assert outcome(figures(dist)) == outcome(before)


def test_clients_that_invent_fields_cannot_fill_the_page(stop: Server) -> None:
    seen = rise(stop, lambda: stop.chat(max_tokens=1, a_field_of_the_future=1))
    assert seen[("soloist_ignored_fields_total", "a_field_of_the_future")] == 1
    metrics = Metrics()
    for number in range(3 * MOST_NAMES):
        metrics.ignored((f"{number}" + "x" * 100,))
    names = {s.labels["field"] for f in metrics.registry.collect() for s in f.samples if "field" in s.labels}
    assert len(names) == MOST_NAMES + 1 and OTHER in names and max(map(len, names)) == 64


def test_tokens_that_come_together_share_their_time() -> None:
    metrics = Metrics()
    clock = Clock(metrics, time.monotonic())
    for choice, tokens in ((0, 1), (1, 2), (0, 4), (1, 0)):
        clock.tick(choice, tokens)
    sample = metrics.registry.get_sample_value
    assert sample("soloist_generated_tokens_total") == 7 and clock.later == 6
    assert sample("soloist_inter_token_latency_seconds_count") == 1
    assert sample("soloist_time_to_first_token_seconds_count") == 1
