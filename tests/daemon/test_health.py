"""Health tells the truth: loading, busy, wedged, dead, draining. Each state is brought about, none is pretended."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_server import HI, PATIENCE, Server, post_bytes, serving
from soloist.daemon import health as health_room
from soloist.executor.batch import Batch
from soloist.executor.worker import Worker

FIELDS = {
    "status", "state", "reason", "last_step_age_s", "oldest_job_age_s", "queue_depth", "running", "generation", "steps",
    "last_error", "canary", "thread", "thread_id", "stream", "device", "seed_state", "model", "version",
}  # fmt: skip


def until(server: Server, path: str, status: int) -> Any:
    end = time.monotonic() + PATIENCE
    while (reply := server.get(path)).status != status:
        assert time.monotonic() < end, reply.body
        time.sleep(0.02)
    return reply


def is_red(server: Server, state: str) -> None:
    """Readiness and the model list say why; liveness stays."""
    for path in ("/health", "/health/ready", "/health/deep"):
        reply = server.get(path)
        assert (reply.status, reply.json["state"]) == (503, state) and reply.json["reason"]
        assert int(reply.headers["retry-after"]) >= 1
    models = server.get("/v1/models")
    assert (models.status, models.error["code"]) == (503, state)
    assert server.get("/health/live").status == 200


def is_green(server: Server) -> None:
    for path in ("/health", "/health/ready", "/health/deep", "/health/live", "/v1/models"):
        assert server.get(path).status == 200, path


def test_a_ready_server_describes_its_executor(stop: Server) -> None:
    is_green(stop)
    document = stop.get("/health").json
    assert set(document) >= FIELDS
    assert document["state"] == "ready" and document["generation"] == 1
    assert document["thread"] and document["stream"] and document["device"] and document["seed_state"]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While it is clear, a decode step hangs."""
    event, real = threading.Event(), Batch.step
    event.set()

    def step(self: Batch) -> Any:
        event.wait(PATIENCE)
        return real(self)

    monkeypatch.setattr(Batch, "step", step)
    yield event
    event.set()


def test_deep_health_is_red_when_no_token_comes_although_all_else_is_green(
    folders: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_room, "DEEP_WITHIN_S", 0.3)
    with serving(folders / "stop") as server:
        gate.clear()
        reply = server.get("/health/deep")
        assert reply.status == 503 and "no token" in reply.json["reason"]
        assert server.get("/health").status == 200, "the step is younger than the bound"
        gate.set()
        until(server, "/health/deep", 200)


def test_a_loading_server_is_alive_and_not_ready(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, real = threading.Event(), Worker.open_thread

    def slow(self: Worker) -> Any:
        release.wait(PATIENCE)
        return real(self)

    monkeypatch.setattr(Worker, "open_thread", slow)
    with serving(folders / "stop", wait=False) as server:
        is_red(server, "loading")
        reply = server.chat()
        assert (reply.status, reply.error["code"]) == (503, "loading") and int(reply.headers["retry-after"]) >= 1
        release.set()
        until(server, "/health", 200)
        is_green(server)


def test_a_wedged_step_turns_readiness_red_and_fails_what_waits(folders: Path, gate: threading.Event) -> None:
    with serving(folders / "loop", stall_after=0.4) as server:
        gate.clear()
        with server.connect() as raw, server.connect() as streaming:
            raw.sendall(post_bytes({"messages": HI}))
            streaming.sendall(post_bytes({"messages": HI, "stream": True}))
            until(server, "/health", 503)
            is_red(server, "stalled")
            assert b" 503 " in raw.recv(65536).partition(b"\r\n")[0]
            assert b"executor_failed" in streaming.recv(65536)
        assert server.chat().status == 503
        gate.set()
        until(server, "/health", 200)
        server.canary()


def test_a_busy_server_is_ready_and_answers_health_at_once(loop: Server) -> None:
    sockets = [loop.connect() for _ in range(4)]
    for raw in sockets:
        raw.sendall(post_bytes({"messages": HI, "stream": True}))
    assert {loop.get("/health").status for _ in range(20)} == {200}
    assert loop.get("/health").json["oldest_job_age_s"] is not None
    for raw in sockets:
        raw.close()


class Murder(BaseException):
    """Escapes every `except Exception`."""


def kill_thread(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    real, left = Batch.step, [times]

    def step(self: Batch) -> Any:
        if left[0]:
            left[0] -= 1
            raise Murder("injected")
        return real(self)

    monkeypatch.setattr(Batch, "step", step)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_thread_fails_its_request_and_is_replaced(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(folders / "stop") as server:
        kill_thread(monkeypatch, 1)
        reply = server.chat()
        assert (reply.status, reply.error["code"]) == (503, "executor_failed")
        until(server, "/health", 200)
        assert server.get("/health").json["generation"] == 2
        server.canary()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_keeps_dying_is_red_for_good(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(folders / "stop") as server:
        kill_thread(monkeypatch, 100)
        end = time.monotonic() + PATIENCE
        while server.get("/health").json["state"] != "failed":
            assert time.monotonic() < end
            server.chat()
        is_red(server, "failed")
        assert server.chat().status == 503


def test_a_draining_server_refuses_and_says_so(folders: Path) -> None:
    with serving(folders / "stop") as server:
        server.call(lambda: setattr(server.daemon, "draining", True))
        is_red(server, "draining")
        reply = server.chat()
        assert (reply.status, reply.error["code"]) == (503, "draining") and reply.headers["retry-after"]
        assert reply.headers["connection"] == "close"


def test_the_mutant_with_a_constant_health_is_caught(
    folders: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = health_room.read_health
    monkeypatch.setattr(health_room, "read_health", lambda daemon: (True, real(daemon)[1]))
    with pytest.raises(AssertionError):
        test_a_draining_server_refuses_and_says_so(folders)
