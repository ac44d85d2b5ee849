"""Who may call: keys, the Host guard, CORS."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from http_server import CHAT, HI, Server, serving
from soloist.daemon.config import Config, ConfigError
from soloist.daemon.guard import host_allowed
from soloist.daemon.keys import read_keys

ORIGIN = "http://a.example"
WANTED = "authorization,content-type,x-stainless-os,dangerously-allow-browser"
TINY = {"messages": HI, "max_tokens": 1}


@pytest.fixture(scope="module")
def locked(folders: Path) -> Iterator[Server]:
    with serving(folders / "stop", api_key=("sk-right", "sk-other")) as server:
        yield server


def test_a_key_is_needed_and_any_of_them_does(locked: Server) -> None:
    for wrong in ("", "Bearer wrong", "Bearer ", "Basic sk-right", "sk-right", "Bearer sk-righ", "Bearer sk-right2"):
        reply = locked.request("POST", CHAT, TINY, Authorization=wrong)
        assert reply.status == 401 and reply.error["code"] == "invalid_api_key"
        assert reply.headers["www-authenticate"] == "Bearer"
    for right in ("Bearer sk-right", "bearer sk-other"):
        assert locked.request("POST", CHAT, TINY, Authorization=right).status == 200


def test_health_and_preflights_need_no_key_but_models_do(locked: Server) -> None:
    for path in ("/health", "/health/live", "/health/ready", "/health/deep"):
        assert locked.get(path, Authorization="").status == 200
    assert locked.get("/v1/models", Authorization="").status == 401
    assert locked.get("/nope", Authorization="").status == 401
    reply = locked.request("OPTIONS", CHAT, Authorization="", Origin=ORIGIN, Access_Control_Request_Method="POST")
    assert reply.status == 204


def test_a_key_file_holds_keys_with_and_without_names(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\nalice:sk-a\n\nsk-b\n")
    keys = read_keys(Config(api_key_file=file, api_key=("sk-c",)))
    assert [keys.holder(key) for key in ("sk-a", "sk-b", "sk-c", "sk-d", "")] == [
        "alice",
        "line-4",
        "key-1",
        None,
        None,
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n", "alice:\n"])
def test_a_key_file_that_would_lock_or_open_everything_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(ConfigError):
        read_keys(Config(api_key_file=file))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "box.example"])
def test_an_address_that_others_can_reach_needs_a_key(host: str) -> None:
    with pytest.raises(ConfigError, match="api_key"):
        Config(host=host)
    assert Config(host=host, api_key=("k",)).host == host


@pytest.mark.parametrize(
    ("host", "allowed"),
    [("127.0.0.1:3301", True), ("[::1]:3301", True), ("localhost", True), ("x", True), ("app.localhost:80", True),
     ("mac.local", True), ("192.168.0.7:3301", True), ("LOCALHOST:1", True), ("evil.example", False),
     ("evil.example:3301", False), ("127.0.0.1.evil.example", False), ("localhost.evil.example", False),
     ("good.example", True)],
)  # fmt: skip
def test_names_that_others_can_register_are_not_served(host: str, allowed: bool) -> None:
    assert host_allowed(host, Config(allowed_host=("good.example",))) is allowed
    assert host_allowed(host, Config(allowed_host=("*",)))


def test_a_foreign_host_is_a_403_on_every_path(stop: Server) -> None:
    for path in ("/v1/models", "/health", "/nope"):
        reply = stop.get(path, Host="evil.example")
        assert (reply.status, reply.error["code"]) == (403, "host_not_allowed")


def test_a_preflight_echoes_the_headers_that_were_asked_for(stop: Server) -> None:
    reply = stop.request(
        "OPTIONS", CHAT, Origin=ORIGIN, Access_Control_Request_Method="POST", Access_Control_Request_Headers=WANTED,
        Access_Control_Request_Private_Network="true",
    )  # fmt: skip
    assert reply.status == 204
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert reply.headers["access-control-allow-headers"] == WANTED
    assert reply.headers["access-control-allow-origin"] == ORIGIN
    assert reply.headers["access-control-allow-private-network"] == "true"
    assert "Origin" in reply.headers["vary"]


def test_every_response_may_be_read_by_pages(stop: Server) -> None:
    replies = [
        stop.request("POST", CHAT, TINY, Origin=ORIGIN),
        stop.request("POST", CHAT, {**TINY, "stream": True}, Origin=ORIGIN),
        stop.request("POST", CHAT, {**TINY, "max_tokens": -1}, Origin=ORIGIN),
        stop.request("POST", CHAT, TINY, Origin=ORIGIN, Content_Type="text/plain"),
        stop.get("/v1/nope", Origin=ORIGIN),
        stop.get(CHAT, Origin=ORIGIN),
        stop.get("/health", Origin=ORIGIN),
    ]
    assert [reply.status for reply in replies] == [200, 200, 400, 415, 404, 405, 200]
    for reply in replies:
        assert reply.headers["access-control-allow-origin"] == ORIGIN
        assert reply.headers["vary"] == "Origin"
        assert "X-Soloist-Seed" in reply.headers["access-control-expose-headers"]


def test_a_closed_policy_refuses_foreign_pages_and_nobody_else(folders: Path) -> None:
    with serving(folders / "stop", cors_origin=("https://app.example",)) as server:
        assert server.get("/health", Origin="https://app.example").headers["access-control-allow-origin"]
        foreign = server.request("POST", CHAT, TINY, Origin=ORIGIN)
        assert foreign.status == 403 and "access-control-allow-origin" not in foreign.headers
        assert server.request("POST", CHAT, TINY).status == 200
        own = f"http://127.0.0.1:{server.port}"
        assert server.request("POST", CHAT, TINY, Origin=own).status == 200
    with serving(folders / "stop", cors_origin=("none",)) as server:
        reply = server.get("/health", Origin=ORIGIN)
        assert reply.status == 403 and "access-control-allow-origin" not in reply.headers
