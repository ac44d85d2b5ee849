"""A client that leaves takes its work with it: streaming or not, queued or running, or still sending its body."""

import socket
import struct
import time
from typing import Any

import pytest
from http_server import HI, PATIENCE, Server, post_bytes

ENDLESS = {"messages": HI, "max_tokens": 100000}


def settled(server: Server) -> bool:
    """Wait until nothing is answered, queued or running any more."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        health = server.get("/health").json
        if not (health["answering"] or health["queue_depth"] or health["running"]):
            return True
        time.sleep(0.02)
    return False


def wait_for(server: Server, field: str, count: int) -> None:
    end = time.monotonic() + PATIENCE
    while server.get("/health").json[field] < count:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reset", [False, True])
def test_a_running_request_ends_with_its_client(loop: Server, stream: bool, reset: bool) -> None:
    raw = loop.connect()
    raw.sendall(post_bytes({**ENDLESS, "stream": stream}))
    wait_for(loop, "running", 1)
    steps = loop.get("/health").json["steps"]
    if reset:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()
    assert settled(loop)
    assert loop.get("/health").json["steps"] - steps < 3000, "it did not run to its end"
    loop.canary()


def test_orphans_in_the_queue_never_start(loop: Server) -> None:
    sockets = [loop.connect() for _ in range(20)]
    for raw in sockets:
        raw.sendall(post_bytes(ENDLESS))
    wait_for(loop, "queue_depth", 5)
    for raw in sockets:
        raw.close()
    assert settled(loop)
    loop.canary()


def test_a_client_that_leaves_half_way_through_its_body_leaves_nothing(loop: Server) -> None:
    raw = loop.connect()
    raw.sendall(post_bytes(ENDLESS)[:-5])
    wait_for(loop, "answering", 1)
    raw.close()
    assert settled(loop)


def test_a_stream_that_is_hung_up_on_ends(loop: Server) -> None:
    events = loop.events("/v1/completions", {"prompt": "x", "max_tokens": 100000}, first=3)
    assert len(events.data) == 3
    assert settled(loop)


def test_a_neighbour_keeps_its_tokens_when_another_leaves(loop: Server) -> None:
    alone = loop.chat(max_tokens=200).text
    raw = loop.connect()
    raw.sendall(post_bytes(ENDLESS))
    wait_for(loop, "running", 1)
    with loop.connect() as other:
        other.sendall(post_bytes({"messages": HI, "max_tokens": 200}))
        wait_for(loop, "running", 2)
        raw.close()
        answer: Any = b""
        while part := other.recv(65536):
            answer += part
    assert alone.encode() in answer
