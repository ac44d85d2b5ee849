"""`soloist serve` as a process: what it prints, how it ends, and with which number."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from http_server import HI, PATIENCE, Client, post_bytes
from soloist.daemon import exit_codes


@contextmanager
def process(*arguments: str, fault: str = "", **environment: str) -> Iterator[subprocess.Popen[str]]:
    """fault: Python that runs before the command does."""
    script = f"import sys, time\n{fault}\nfrom soloist.__main__ import main\nsys.exit(main())"
    command = [sys.executable, *(["-c", script] if fault else ["-m", "soloist"]), *arguments]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def ended(*arguments: str, **environment: str) -> tuple[int, str, str]:
    with process(*arguments, **environment) as child:
        out, err = child.communicate(timeout=PATIENCE)
        return child.returncode, out, err


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(
    folder: Path, *arguments: str, fault: str = "", path: str = "/health"
) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    """Once `path` is 200."""
    port = free_port()
    with process("serve", "--model", str(folder), "--port", str(port), *arguments, fault=fault) as child:
        client, end = Client(port), time.monotonic() + PATIENCE
        while time.monotonic() < end and child.poll() is None:
            try:
                if client.get(path).status == 200:
                    yield child, client
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.05)
        raise AssertionError(child.communicate(timeout=5))


def test_sigterm_ends_a_busy_server_within_its_grace(folders: Path) -> None:
    """Streams, whole answers, and a client that never reads."""
    with served(folders / "loop", "--shutdown-grace", "0.5", "--max-context", "200000") as (child, client):
        sockets = [client.connect() for _ in range(4)]
        for index, raw in enumerate(sockets):
            raw.sendall(post_bytes({"messages": HI, "stream": index < 3}))
        while client.get("/health").json["running"] < 4:
            time.sleep(0.02)
        child.send_signal(signal.SIGTERM)
        streamed, whole = read_all(sockets[1]), read_all(sockets[3])
        out, err = child.communicate(timeout=PATIENCE)
        for raw in sockets:
            raw.close()
    assert child.returncode == exit_codes.CLEAN, err
    assert b'"code":"draining"' in streamed and b"[DONE]" not in streamed
    assert b" 503 " in whole.partition(b"\r\n")[0] and b'"code":"draining"' in whole
    assert "is ready" in out and f":{client.port}/v1/chat/completions" in out
    assert "Traceback" not in err


def test_a_client_that_never_reads_cannot_hold_the_process(folders: Path) -> None:
    body = {"messages": HI, "stream": True, "logprobs": True, "top_logprobs": 20, "n": 8, "max_tokens": 400}
    with served(folders / "loop", "--shutdown-grace", "0.3") as (child, client), socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", client.port))
        raw.sendall(post_bytes(body))
        end = time.monotonic() + PATIENCE
        while (health := client.get("/health").json)["steps"] < 400 or health["running"] or not health["answering"]:
            assert time.monotonic() < end, "all tokens are drawn, and the answer still waits for its reader"
            time.sleep(0.02)
        child.send_signal(signal.SIGTERM)
        assert child.wait(5) == exit_codes.CLEAN


def read_all(raw: socket.socket) -> bytes:
    received = b""
    try:
        while part := raw.recv(65536):
            received += part
    except ConnectionError:
        pass
    return received


def test_running_requests_finish_within_the_grace_and_new_ones_are_refused(folders: Path) -> None:
    with served(folders / "loop", "--shutdown-grace", "10") as (child, client), client.connect() as raw:
        raw.sendall(post_bytes({"messages": HI, "max_tokens": 600}))
        while not client.get("/health").json["running"]:
            time.sleep(0.01)
        child.send_signal(signal.SIGTERM)
        while (health := client.get("/health")).status == 200:
            time.sleep(0.01)
        assert health.json["state"] == "draining"
        refused = client.chat()
        assert (refused.status, refused.error["code"]) == (503, "draining") and refused.headers["retry-after"]
        answer = read_all(raw)
        assert b" 200 " in answer.partition(b"\r\n")[0] and b'"completion_tokens":600' in answer
        assert child.wait(PATIENCE) == exit_codes.CLEAN


def test_a_second_signal_ends_at_once(folders: Path) -> None:
    with served(folders / "loop", "--shutdown-grace", "60") as (child, client), client.connect() as raw:
        raw.sendall(post_bytes({"messages": HI, "stream": True}))
        while not client.get("/health").json["running"]:
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        assert child.wait(5) == exit_codes.SIGNALLED + signal.SIGINT


HANG = """
from soloist.executor.worker import Worker
from soloist.executor.batch import Batch
def hang(*_): time.sleep(600)
"""


def test_sigterm_during_the_load_ends_at_once(folders: Path) -> None:
    fault = HANG + "Worker.open_thread = hang"
    with served(folders / "stop", fault=fault, path="/health/live") as (child, client):
        assert client.get("/health").json["state"] == "loading"
        child.send_signal(signal.SIGTERM)
        assert child.wait(5) == exit_codes.CLEAN


def test_sigterm_ends_a_server_whose_executor_hangs(folders: Path) -> None:
    fault = HANG + "real = Batch.step\nBatch.step = lambda self: (hang if len(self.rows[0].ids) > 5 else real)(self)"
    with served(folders / "stop", "--shutdown-grace", "0.2", fault=fault) as (child, client), client.connect() as raw:
        raw.sendall(post_bytes({"messages": HI}))
        while not client.get("/health").json["answering"]:
            time.sleep(0.01)
        child.send_signal(signal.SIGTERM)
        assert b'"code":"draining"' in read_all(raw)
        assert child.wait(5) == exit_codes.CLEAN


def test_a_hanging_executor_ends_the_process_where_that_is_asked_for(folders: Path) -> None:
    fault = HANG + "real = Batch.step\nBatch.step = lambda self: (hang if len(self.rows[0].ids) > 5 else real)(self)"
    with served(folders / "stop", "--exit-on-hang", "--stall-after", "0.4", fault=fault) as (child, client):
        assert client.chat().status == 503
        assert child.wait(PATIENCE) == exit_codes.EXECUTOR_HUNG


def test_a_taken_port_is_one_line_and_its_own_number(folders: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, out, err = ended("serve", "--model", str(folders / "stop"), "--port", port)
    assert code == exit_codes.PORT_TAKEN and out == ""
    assert err.startswith("soloist: cannot listen on 127.0.0.1") and err.count("\n") == 1


def test_a_missing_model_is_one_line_and_another_number(tmp_path: Path) -> None:
    code, _, err = ended("serve", "--model", str(tmp_path / "none"), "--port", "0", HF_HUB_OFFLINE="1")
    assert code not in (0, 1, exit_codes.USAGE, exit_codes.PORT_TAKEN)
    assert err.strip().count("\n") == 0 and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "environment", "named"),
    [
        (["--port", "x"], {}, ("port", "flag --port")),
        (["--host", "0.0.0.0"], {}, ("api_key", "0.0.0.0")),
        ([], {"SOLOIST_MAX_BATCH": "0"}, ("max_batch", "SOLOIST_MAX_BATCH")),
        (["--config", "/nonexistent.toml"], {}, ("/nonexistent.toml",)),
    ],
)
def test_a_bad_setting_is_one_line_that_names_it(
    arguments: list[str], environment: dict[str, str], named: tuple[str, ...]
) -> None:
    code, _, err = ended("serve", *arguments, **environment)
    assert code == exit_codes.CONFIGURATION and err.count("\n") == 1
    assert all(name in err for name in named)


def test_version_and_help_import_no_server() -> None:
    code, out, _ = ended("--version")
    assert code == 0 and out.startswith("soloist ")
    code, out, _ = ended("--help")
    assert code == 0 and all(command in out for command in ("serve", "models", "doctor"))
    probe = "import sys, soloist.__main__ as m\ntry: m.main(['--version'])\nexcept SystemExit: pass\n" \
        "sys.exit(any(n in sys.modules for n in ('aiohttp', 'mlx', 'rich', 'orjson', 'tokenizers')))"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", probe], check=False, capture_output=True).returncode == 0


def test_no_command_is_a_usage_error() -> None:
    assert ended()[0] == exit_codes.USAGE
