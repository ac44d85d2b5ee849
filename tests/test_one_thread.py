"""In a serving process one thread calls MLX, and it is the executor's: recorded at MLX's own doors, over real HTTP."""

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from adapter_files import VALUE, draw, layered, weights_of, write_mlx
from http_server import Client, post_bytes
from instances import free_ports, ready, running, until
from tiny_models import LLAMA, random_model

TESTS = Path(__file__).parent
PROGRAM = """
import json, os, sys
sys.path.insert(0, {tests!r})
import recorded_mlx
recorded_mlx.install()
{fault}
from soloist.__main__ import main
code = main()
with open({report!r}, "w") as file:
    json.dump({{str(thread): sorted(names) for thread, names in recorded_mlx.seen.items()}}, file)
os._exit(code)
"""
ON_THE_LOOP = """
import soloist.daemon.metrics_page as page
real = page.read_health
def read_health_and_memory(daemon):
    sys.modules["mlx.core"].get_active_memory()
    return real(daemon)
page.read_health = read_health_and_memory
"""
PROMPT = "The quick brown fox jumps over the lazy dog, and again, " * 6


@dataclass(frozen=True)
class Record:
    """What one life of a serving process left: the executor's thread, and what each thread called."""

    executor: int
    threads: dict[int, set[str]]
    exit_code: int


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and beside it an adapter."""
    folder = random_model(tmp_path_factory.mktemp("m") / "llama", LLAMA)
    write_mlx(folder.parent / "one", draw(weights_of(folder), layered(VALUE)))
    return folder


def served(folder: Path, scratch: Path, fault: str = "") -> Record:
    """Serve everything that a process can serve, end it, and read what was recorded."""
    (port,) = free_ports(1)
    report = scratch / "threads.json"
    program = PROGRAM.format(tests=str(TESTS), report=str(report), fault=fault)
    words = ["serve", "--model", str(folder), "--port", str(port), "--adapter", f"one={folder.parent / 'one'}"]
    words += ["--cache-dir", str(scratch / "cache"), "--prefill-chunk", "64"]
    with running(words, scratch / "log", program) as process:
        until(lambda: ready(port) or process.poll() is not None, "the server is ready")
        assert process.poll() is None, (scratch / "log").read_text()
        client = Client(port)
        executor = client.get("/health").json["thread_id"]
        use(client, folder.parent / "one")
        process.send_signal(signal.SIGTERM)
        code = process.wait(20)
    threads = {int(thread): set(names) for thread, names in json.loads(report.read_text()).items()}
    return Record(executor, threads, code)


def use(client: Client, adapter: Path) -> None:
    """Chats, completions, streams, adapters, prefixes that come again, forms, refusals, departures, health."""
    whole: list[dict[str, Any]] = [
        {}, {"temperature": 0}, {"seed": 1, "n": 3}, {"logprobs": True, "top_logprobs": 5}, {"adapter": "one"},
        {"presence_penalty": 1, "repetition_penalty": 1.2}, {"top_p": 0.9, "top_k": 40, "min_p": 0.01},
        {"logit_bias": {"97": 3}}, {"response_format": {"type": "json_object"}},
    ]  # fmt: skip
    message = [{"role": "user", "content": PROMPT}]
    for fields in whole:
        assert client.chat(message, max_tokens=16, **fields).status == 200
    assert client.complete([PROMPT, "x"], max_tokens=8).status == 200
    assert client.chat(message, temperature=9).status == 400
    for fields in ({}, {"model": "one"}):
        assert client.chat_events(message, max_tokens=16, **fields).done
    again = client.chat(message, max_tokens=4).json["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert again > 0
    client.chat_events(message, first=2, max_tokens=2000)
    with leaving(client, {"messages": message, "max_tokens": 2000}):
        until(lambda: client.get("/health").json["running"], "the request runs")
    until(lambda: not client.get("/health").json["running"], "those who left are forgotten")
    order = {"name": "late", "path": str(adapter)}
    assert client.request("POST", "/v1/adapters", order).status == 200
    assert client.chat(message, max_tokens=4, model="late").status == 200
    assert client.request("DELETE", "/v1/adapters/late").status == 200
    assert client.request("POST", "/v1/adapters", order | {"path": "/nowhere"}).status == 400
    for path in ("/v1/models", "/v1/models/one", "/v1/adapters", "/health/deep", "/health/live", "/metrics"):
        assert client.get(path).status == 200, path


@contextmanager
def leaving(client: Client, body: Any) -> Iterator[socket.socket]:
    """A client that asks, and goes before it is answered."""
    with client.connect() as raw:
        raw.sendall(post_bytes(body))
        yield raw


def only_the_executor(record: Record) -> bool:
    return set(record.threads) == {record.executor}


def test_one_thread_calls_mlx_and_it_is_the_executors(folder: Path, tmp_path: Path) -> None:
    record = served(folder, tmp_path)
    assert only_the_executor(record), {thread: sorted(names) for thread, names in record.threads.items()}
    assert record.exit_code == 0
    called = record.threads[record.executor]
    assert {"import", "load", "async_eval", "random.seed", "array.tolist", "clear_streams"} <= called
    assert len(called) > 60, "and it does not look elsewhere for its arrays"


def test_mutant_a_call_from_the_event_loop_is_caught(folder: Path, tmp_path: Path) -> None:
    record = served(folder, tmp_path, ON_THE_LOOP)
    assert not only_the_executor(record)
    (other,) = set(record.threads) - {record.executor}
    assert record.threads[other] == {"get_active_memory"}
