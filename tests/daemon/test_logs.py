"""One line a request, with all that an operator asks for and nothing that a user wrote; ids in and out."""

import io
import json
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_faults import fail_after
from http_server import CHAT, HI, PATIENCE, Reply, Server, serving
from soloist.daemon.config import Config
from soloist.daemon.log_format import set_up

SECRET = "the-prompt-is-private"
ASKED = [{"role": "user", "content": SECRET}]


@pytest.fixture
def lines() -> Iterator[Any]:
    """Call it with a configuration; it gives the stream that lines go to. The test runner's logging comes back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()

    def begin(**config: Any) -> io.StringIO:
        stream = io.StringIO()
        set_up(Config(**config), stream)
        return stream

    yield begin
    root.handlers[:] = handlers
    root.setLevel(level)


def requests(stream: io.StringIO, count: int = 1) -> list[dict[str, Any]]:
    """The line of a stream is written just after its last byte, so it may take a moment."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = [json.loads(line) for line in stream.getvalue().splitlines()]
        lines = [line for line in found if line["message"] == "request"]
        if len(lines) >= count:
            break
        time.sleep(0.01)
    return lines


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_leaves_one_line_with_all_of_it(stop: Server, lines: Any, stream: bool) -> None:
    log = lines()
    body = {"messages": ASKED, "stream": stream, "seed": 5, "max_tokens": 6, "unheard": 1}
    reply = stop.request("POST", CHAT, body, X_Request_Id="mine-7")
    assert reply.status == 200 and reply.headers["x-request-id"] == "mine-7"
    (line,) = requests(log)
    assert line["level"] == "info" and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    expected = {
        "id": "mine-7", "endpoint": CHAT, "method": "POST", "status": 200, "outcome": "ok", "model": "stop",
        "stream": stream, "choices": 1, "seed": 5, "completion_tokens": 6, "ignored": "unheard",
    }  # fmt: skip
    assert {name: line[name] for name in expected} == expected
    assert line["answer"].startswith("chatcmpl-") and line["prompt_tokens"] > 0 and line["cached_tokens"] >= 0
    assert 0 < line["ttft_s"] <= line["duration_s"] and line["tokens_per_s"] > 0
    assert SECRET not in log.getvalue()


def test_a_terminal_gets_key_and_value(stop: Server, lines: Any) -> None:
    log = lines(log_format="text")
    stop.chat(ASKED, max_tokens=2)
    (line,) = log.getvalue().splitlines()
    assert re.match(r"\S+Z INFO request id=req_\w+ method=POST endpoint=/v1/chat/completions status=200 ", line)
    assert " outcome=ok " in line and " stream=false " in line and SECRET not in line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_form_follows_the_reader_unless_told(lines: Any) -> None:
    lines()
    for stream, config, first in (
        (Terminal(), {}, "2"),
        (io.StringIO(), {}, "{"),
        (Terminal(), {"log_format": "json"}, "{"),
        (io.StringIO(), {"log_format": "text"}, "2"),
    ):
        set_up(Config(**config), stream)
        logging.getLogger("x").warning("hello")
        assert stream.getvalue()[0] == first


def test_prompts_are_logged_when_that_is_asked_for(folders: Path, lines: Any) -> None:
    log = lines()
    with serving(folders / "stop", log_prompts=True) as server:
        server.chat(ASKED, max_tokens=1)
    assert json.loads(requests(log)[0]["body"])["messages"] == ASKED


def broken(text: str) -> Any:
    raise RuntimeError(f"cannot handle {text}")


def test_no_path_lets_a_prompt_into_the_log(stop: Server, lines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong fields, broken JSON, a template that raises, a fault of our own that quotes what it was given."""
    log = lines(log_level="debug")
    stop.chat([{"role": SECRET, "content": SECRET}])
    stop.chat(ASKED, stop=[SECRET, 1], logit_bias={SECRET: 1})
    stop.request("POST", CHAT, f'{{"messages": "{SECRET}"'.encode())
    stop.get(f"/v1/{SECRET}")
    stop.chat_events(ASKED, max_tokens=2)
    monkeypatch.setattr(type(stop.daemon.served.tokenizer), "render", lambda *_, **__: broken(SECRET))
    assert stop.chat(ASKED).status == 500
    assert SECRET not in log.getvalue()
    assert "RuntimeError: (its text is private)" in log.getvalue() and "in broken" in log.getvalue()


@pytest.mark.parametrize("text", ["a b=c", 'say "x"', "line\nbreak", "ünïcode", "", "\x1b[31mred"])
def test_a_value_cannot_pretend_to_be_another_field_or_line(lines: Any, text: str) -> None:
    log = lines(log_format="text")
    logging.getLogger("x").warning("hello", extra={"fields": {"field": text, "none": None}})
    (line,) = log.getvalue().splitlines()
    assert line.endswith(f"hello field={json.dumps(text)}")


def test_errors_say_their_code_and_probes_are_quiet(stop: Server, lines: Any) -> None:
    log = lines()
    stop.chat(temperature=9)
    stop.get("/health")
    stop.get("/metrics")
    stop.get("/v1/models")
    (line,) = requests(log)
    fields = ("status", "outcome", "code", "param")
    assert [line[name] for name in fields] == [400, "client_error", "invalid_value", "temperature"]


def test_a_failure_in_the_middle_of_a_stream_is_a_warning(
    folders: Path, lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(folders / "stop") as server:
        fail_after(monkeypatch, 3)
        log = lines()
        server.chat_events(ASKED)
        (line,) = requests(log)
    assert (line["level"], line["outcome"], line["code"], line["status"]) == (
        "warning", "failed", "executor_failed", 200,
    )  # fmt: skip
    assert line["completion_tokens"] >= 2 and line["seed"]


def test_a_key_is_logged_by_the_name_of_its_holder(folders: Path, tmp_path: Path, lines: Any) -> None:
    file = tmp_path / "keys"
    file.write_text("alice:sk-alice-secret\n")
    with serving(folders / "stop", api_key_file=file) as server:
        log = lines(log_level="debug")
        server.request("POST", CHAT, {"messages": HI, "max_tokens": 1}, Authorization="Bearer sk-alice-secret")
        server.request("POST", CHAT, {"messages": HI, "max_tokens": 1}, Authorization="Bearer sk-wrong-secret")
    assert [line.get("key") for line in requests(log, 2)] == ["alice", None]
    assert "secret" not in log.getvalue()


def test_every_answer_carries_an_id_errors_and_streams_and_broken_http_too(stop: Server) -> None:
    replies: list[Reply | Any] = [
        stop.get("/nope"),
        stop.chat(temperature=9),
        stop.chat_events(max_tokens=1),
        stop.request("OPTIONS", CHAT),
        stop.get("/health", Host="evil.example"),
    ]
    assert all(reply.headers["x-request-id"].startswith("req_") for reply in replies)
    assert len({reply.headers["x-request-id"] for reply in replies}) == len(replies)
    assert b"\r\nX-Request-Id: req_" in stop.exchange(b"NONSENSE\r\n\r\n")


@pytest.mark.parametrize("sent", ["x" * 129, "a b", "ümlaut", '"}', "a\tb"])
def test_an_id_that_could_do_harm_is_replaced(stop: Server, sent: str) -> None:
    assert stop.get("/health", X_Request_Id=sent).headers["x-request-id"].startswith("req_")
