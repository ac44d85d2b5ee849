"""Streamed answers: the order of events, the same text as whole answers, and comments while nothing else is sent."""

from typing import Any

import pytest
from http_faults import fail_after, slow_prefill
from http_server import CHAT, COMPLETIONS, HI, Server, post_bytes, serving
from soloist.daemon import sse
from soloist.executor.prefill import Prefill

ALPHABET = "alpha beta gamma delta The quick brown fox end"


def test_a_chat_stream_begins_with_the_role_and_ends_with_done(stop: Server) -> None:
    events = stop.chat_events()
    assert events.status == 200 and events.headers["content-type"].startswith("text/event-stream")
    assert events.headers["x-soloist-seed"].isdigit()
    choices = events.of()
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert choices[-1] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert [c["finish_reason"] for c in choices[:-1]] == [None] * (len(choices) - 1)
    assert events.text == ALPHABET and events.done
    assert len({chunk["id"] for chunk in events.chunks}) == 1
    assert {chunk["object"] for chunk in events.chunks} == {"chat.completion.chunk"}
    assert not any("usage" in chunk for chunk in events.chunks)


def test_a_completion_stream_has_text_chunks_only(stop: Server) -> None:
    events = stop.complete_events()
    assert events.text == ALPHABET and events.done
    assert events.of()[-1]["finish_reason"] == "stop"
    assert {chunk["object"] for chunk in events.chunks} == {"text_completion"}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_usage_comes_in_one_chunk_without_choices_before_done(stop: Server, path: str) -> None:
    body = {"messages": HI} if path == CHAT else {"prompt": "x"}
    events = stop.events(path, {**body, "max_tokens": 3, "stream_options": {"include_usage": True}})
    last = events.chunks[-1]
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 3
    assert [chunk["usage"] for chunk in events.chunks[:-1]] == [None] * (len(events.chunks) - 1)
    assert events.done


@pytest.mark.parametrize("stop_at", ["own fox", "own foxes", ["fox e", "own"], "The quick brown fox end!", "ga"])
def test_a_stream_is_the_whole_answer_in_pieces(stop: Server, stop_at: Any) -> None:
    whole, streamed = stop.chat(stop=stop_at), stop.chat_events(stop=stop_at)
    assert streamed.text == whole.text
    assert streamed.of()[-1]["finish_reason"] == whole.choice["finish_reason"]
    assert streamed.of()[-1].get("stop_reason") == whole.choice["stop_reason"]


def test_a_seeded_stream_draws_what_the_whole_answer_draws(dist: Server) -> None:
    fields = {"seed": 9, "max_tokens": 60, "n": 2}
    whole, streamed = dist.chat(**fields).json, dist.chat_events(**fields)
    for index in (0, 1):
        text = "".join(c["delta"].get("content", "") for c in streamed.of(index))
        assert text == whole["choices"][index]["message"]["content"]
        assert streamed.of(index)[0]["delta"]["role"] == "assistant"


def test_several_prompts_stream_side_by_side(dist: Server) -> None:
    fields = {"seed": 9, "max_tokens": 30}
    whole = dist.complete(["x", "y", "z"], **fields).json["choices"]
    streamed = dist.complete_events(["x", "y", "z"], **fields)
    assert ["".join(c["text"] for c in streamed.of(i)) for i in range(3)] == [choice["text"] for choice in whole]
    assert streamed.done


def test_logprobs_stream_with_their_tokens(dist: Server) -> None:
    events = dist.chat_events(max_tokens=4, seed=1, logprobs=True, top_logprobs=1)
    entries = [e for c in events.of() if c["logprobs"] for e in c["logprobs"]["content"]]
    assert "".join(entry["token"] for entry in entries) == events.text
    legacy = dist.complete_events(max_tokens=4, seed=1, logprobs=1)
    offsets = [o for c in legacy.of() if c["logprobs"] for o in c["logprobs"]["text_offset"]]
    assert offsets == [0, 1, 2, 3]


def test_http_1_0_gets_a_stream_that_ends_by_closing(stop: Server) -> None:
    answer = stop.exchange(post_bytes({"messages": HI, "stream": True}, version="HTTP/1.0", head=""))
    assert b"200 OK" in answer and b"chunked" not in answer.lower()
    assert answer.endswith(b"data: [DONE]\n\n")


def test_comments_keep_a_stream_alive_until_its_first_token(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(folders / "stop", keepalive_every=0.05, prefill_chunk=16) as server:
        slow_prefill(monkeypatch, 0.1)
        events = server.chat_events([{"role": "user", "content": "y" * 40}])
    first = next(i for i, line in enumerate(events.lines) if line.startswith(b"data:"))
    assert len(events.comments) >= 2 and all(line.startswith(b":") for line in events.lines[:first])
    assert any("prefill" in comment for comment in events.comments)
    assert events.of()[0]["delta"]["role"] == "assistant" and events.text == ALPHABET and events.done


def test_an_error_before_the_first_token_is_a_plain_503(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(folders / "loop") as server:
        real = Prefill.advance

        def advance(self: Prefill, network: Any, chunk: int) -> int:
            if len(self.ids) > 5:
                raise RuntimeError("injected secret")
            return real(self, network, chunk)

        monkeypatch.setattr(Prefill, "advance", advance)
        for stream in (False, True):
            reply = server.request("POST", CHAT, {"messages": HI, "stream": stream})
            assert reply.status == 503 and reply.headers["content-type"] == "application/json"
            assert reply.error["code"] == "executor_failed" and int(reply.headers["retry-after"]) >= 1
            assert b"secret" not in reply.body
        server.canary()


def test_an_error_after_the_first_token_is_an_event_and_never_a_normal_end(
    folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(folders / "loop") as server:
        fail_after(monkeypatch, 5)
        events = server.chat_events()
        assert events.status == 200 and events.text.startswith("w0 w1")
        assert events.chunks[-1]["error"]["code"] == "executor_failed" and not events.done
        assert not any(c["finish_reason"] for c in events.of())
        assert server.chat().status == 503
        server.canary()


def test_an_error_after_comments_is_an_event_too(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(folders / "loop", keepalive_every=0.02, request_timeout=0.3) as server:
        slow_prefill(monkeypatch, 0.6)
        events = server.chat_events()
        assert events.status == 200 and len(events.comments) > 2
        assert [chunk["error"]["code"] for chunk in events.chunks] == ["deadline_exceeded"] and not events.done


def test_a_client_may_set_a_deadline_of_its_own(folders: Any) -> None:
    with serving(folders / "loop", max_context=200_000) as server:
        body = {"messages": HI, "max_tokens": 100_000}
        late = server.request("POST", CHAT, body, x_soloist_deadline_ms="200")
        assert (late.status, late.json["error"]["code"]) == (503, "deadline_exceeded")
        in_time = server.request("POST", CHAT, body | {"max_tokens": 2}, x_soloist_deadline_ms="60000")
        assert in_time.status == 200
        for wrong in ("0", "-1", "soon", "1.5", "9" * 30):
            reply = server.request("POST", CHAT, body | {"max_tokens": 2}, x_soloist_deadline_ms=wrong)
            assert (reply.status, reply.json["error"]["param"]) == (400, "x-soloist-deadline-ms"), wrong


def test_comments_come_no_later_than_a_second_after_the_request() -> None:
    assert sse.FIRST_COMMENT_AFTER <= 1


def test_a_full_queue_is_a_503_at_once_and_says_when_to_come_again(folders: Any) -> None:
    with serving(folders / "loop", max_batch=1, max_queue=1) as server:
        sockets = [server.connect() for _ in range(2)]
        for raw in sockets:
            raw.sendall(post_bytes({"messages": HI, "max_tokens": 100000}))
        while server.get("/health").json["answering"] < 2 or not server.get("/health").json["running"]:
            pass
        for stream in (False, True):
            reply = server.request("POST", CHAT, {"messages": HI, "stream": stream})
            assert (reply.status, reply.error["code"]) == (503, "overloaded") and reply.headers["retry-after"]
        for raw in sockets:
            raw.close()
