"""The wire: methods, paths, framing, limits; every fault is an OpenAI error object."""

import gzip
import json
import re
import socket

import pytest
from http_server import CHAT, COMPLETIONS, HI, PATIENCE, Reply, Server, post_bytes, read_to_end, serving

TINY = {"messages": HI, "max_tokens": 1}


def is_error(reply: Reply, status: int) -> None:
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == "application/json"
    assert set(reply.error) == {"message", "type", "param", "code"} and reply.error["message"]


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_an_unknown_path_is_a_404(stop: Server) -> None:
    for path in ("/", "/v1", "/v1/nope", "/v1/chat/completions/x"):
        is_error(stop.get(path), 404)


def test_a_wrong_method_is_a_405_that_names_the_right_ones(stop: Server) -> None:
    reply = stop.get(CHAT)
    is_error(reply, 405)
    assert reply.headers["allow"] == "OPTIONS, POST"
    is_error(stop.request("DELETE", "/v1/models"), 405)
    is_error(stop.request("POST", "/health", {}), 405)


def test_a_trailing_slash_and_head_are_understood(stop: Server) -> None:
    assert stop.request("POST", CHAT + "/", TINY).status == 200
    assert stop.get("/v1/models/").json == stop.get("/v1/models").json
    for path in ("/health", "/health/live", "/health/ready", "/v1/models"):
        reply = stop.request("HEAD", path)
        assert (reply.status, reply.body) == (200, b"")


def test_options_says_what_a_path_takes(stop: Server) -> None:
    assert stop.request("OPTIONS", CHAT).headers["allow"] == "OPTIONS, POST"
    assert stop.request("OPTIONS", "/v1/models").headers["allow"] == "GET, HEAD, OPTIONS"


def test_the_model_is_found_under_each_of_its_names(stop: Server) -> None:
    card = stop.get("/v1/models").json["data"][0]
    assert (card["id"], card["object"], card["context_length"]) == ("stop", "model", 4096)
    for name in ("stop", stop.config.model, stop.config.model.replace("/", "%2F")):
        assert stop.get(f"/v1/models/{name}").json == card


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16"]
)
def test_a_body_that_is_not_json_by_its_own_word_is_a_415(stop: Server, kind: str) -> None:
    is_error(stop.request("POST", CHAT, TINY, Content_Type=kind), 415)


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.api+json"])
def test_json_by_other_names_is_read(stop: Server, kind: str) -> None:
    assert stop.request("POST", CHAT, TINY, Content_Type=kind).status == 200


def test_a_body_without_a_content_type_is_read_as_json(stop: Server) -> None:
    answer = stop.exchange(post_bytes(TINY).replace(b"Content-Type: application/json\r\n", b""))
    assert status_of(answer) == 200


def test_content_codings(stop: Server) -> None:
    packed = gzip.compress(json.dumps(TINY).encode())
    assert stop.request("POST", CHAT, packed, Content_Encoding="gzip").status == 200
    is_error(stop.request("POST", CHAT, b"\x1f\x8b\x08\x00", Content_Encoding="gzip"), 400)
    is_error(stop.request("POST", CHAT, b"junk", Content_Encoding="gzip"), 400)
    is_error(stop.request("POST", CHAT, b"x", Content_Encoding="br"), 415)
    stop.canary()


def test_a_body_beyond_the_limit_is_a_413_however_it_comes(folders: object) -> None:
    with serving(folders / "stop", max_body_bytes=2000) as server:  # type: ignore[operator]
        long = {"messages": [{"role": "user", "content": "y" * 3000}]}
        is_error(server.request("POST", CHAT, long, Origin="http://a.example"), 413)
        is_error(server.request("POST", CHAT, gzip.compress(json.dumps(long).encode()), Content_Encoding="gzip"), 413)
        data = json.dumps(long).encode()
        chunked = post_bytes(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data), head="Connection: close\r\n")
        unsized = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", chunked)
        assert status_of(server.exchange(unsized)) == 413
        server.canary()


@pytest.mark.parametrize("size", [1, 10000])
def test_a_chunked_body_is_read(stop: Server, size: int) -> None:
    data = json.dumps(TINY).encode()
    parts = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (data[i : i + size] for i in range(0, len(data), size)))
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()
    assert status_of(stop.exchange(head + parts + b"0\r\n\r\n")) == 200


def test_http_1_0_is_answered(stop: Server) -> None:
    assert status_of(stop.exchange(post_bytes(TINY, version="HTTP/1.0", head=""))) == 200


def test_100_continue_comes_only_when_the_body_is_wanted(stop: Server) -> None:
    expect = "Expect: 100-continue\r\nConnection: close\r\n"
    head, _, body = post_bytes(TINY, head=expect).partition(b"\r\n\r\n")
    with stop.connect() as raw:
        raw.sendall(head + b"\r\n\r\n")
        assert raw.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.sendall(body)
        assert status_of(read_to_end(raw)) == 200
    unwanted = head.replace(b"application/json", b"text/plain") + b"\r\n\r\n"
    with stop.connect() as raw:
        raw.sendall(unwanted)
        assert status_of(raw.recv(65536)) == 415
    assert status_of(stop.exchange(post_bytes(TINY, head="Expect: tea\r\nConnection: close\r\n"))) == 417


def test_pipelined_requests_are_answered_in_order(stop: Server) -> None:
    first = post_bytes({"prompt": "x", "max_tokens": 1}, COMPLETIONS, head="")
    answer = stop.exchange(first + post_bytes(TINY))
    assert answer.index(b'"text_completion"') < answer.index(b'"chat.completion"')


def test_a_body_that_breaks_off_holds_nobody(stop: Server) -> None:
    with stop.connect() as raw:
        raw.sendall(post_bytes(TINY)[:-10])
        raw.shutdown(socket.SHUT_WR)
        assert raw.recv(65536) in (b"",) or True
    stop.canary()


@pytest.mark.parametrize(
    "request_bytes",
    [
        post_bytes(b"5\r\nhello\r\n0\r\n\r\n", head="Transfer-Encoding: chunked\r\nConnection: close\r\n"),
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\nConnection: close\r\n\r\n",
    ],
    ids=["two lengths", "no HTTP", "a bad header", "a long header", "no Host", "two Hosts"],
)
def test_broken_http_is_a_400_in_the_same_shape(stop: Server, request_bytes: bytes) -> None:
    answer = stop.exchange(request_bytes)
    assert status_of(answer) == 400
    assert set(json.loads(answer.partition(b"\r\n\r\n")[2])["error"]) == {"message", "type", "param", "code"}
    stop.canary()


def test_a_broken_chunk_is_a_400(stop: Server) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", stop.port), timeout=PATIENCE) as raw:
        raw.sendall(head + b"zz\r\nhello\r\n0\r\n\r\n")
        assert status_of(raw.recv(65536)) == 400
    stop.canary()


def test_a_fault_of_our_own_is_a_500_without_its_text(stop: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from soloist.daemon import whole

    def broken(*_: object) -> None:
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr(whole, "_chat_choice", broken)
    reply = stop.chat(max_tokens=1)
    is_error(reply, 500)
    assert b"secret" not in reply.body and reply.error["type"] == "server_error"
    stop.canary()


def test_requests_have_an_id_and_keep_their_own(stop: Server) -> None:
    assert stop.get("/health").headers["x-request-id"].startswith("req_")
    assert stop.get("/health", X_Request_Id="mine-1").headers["x-request-id"] == "mine-1"
    assert stop.get("/health", X_Request_Id="bad id!").headers["x-request-id"].startswith("req_")
