"""A real HAProxy before two fake instances, of which one misbehaves in every way that has been seen."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from fake_instances import FakeInstance, fakes
from instances import Answer, ask, free_ports, ready, running, until

COUNCIL = """
address = "127.0.0.1:{port}"
metrics = "127.0.0.1:{metrics}"
guardian = "127.0.0.1:{agent}"
largest_body = "1MiB"
check_every = 0.15
check_timeout = 0.4
check_fall = 2
check_rise = 1
connect_timeout = 0.5
instances.a = {{ address = "127.0.0.1:{a}", models = ["demo"] }}
instances.b = {{ address = "127.0.0.1:{b}", models = ["demo"] }}
"""
PATH = "/v1/chat/completions"


@dataclass
class Bench:
    port: int
    metrics: int
    agent: int
    a: FakeInstance
    b: FakeInstance

    def ask(self, session: object, stream: bool = False) -> Answer:
        body = {"model": "demo", "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
        return ask(f"http://127.0.0.1:{self.port}{PATH}", body, x_session_id=str(session))

    def twenty(self) -> list[Answer]:
        return [self.ask(number, stream=number % 2 == 0) for number in range(20)]

    def one_of_a(self) -> int:
        """A session that belongs to instance a."""
        return next(s for s in range(50) if self.ask(s).headers["x-council-instance"] == "a")

    def up(self) -> int:
        return ask(f"http://127.0.0.1:{self.port}/health").json["instances"]["demo"]

    def settled(self) -> None:
        until(lambda: self.up() == 2, "both instances are in the rotation")

    def read(self, metric: str, server: str) -> float:
        text = ask(f"http://127.0.0.1:{self.metrics}/metrics").body.decode()
        lines = [line for line in text.splitlines() if line.startswith(metric) and f'server="{server}"' in line]
        return float(lines[0].rsplit(" ", 1)[1])


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("c")
    with fakes("a", "b") as (a, b):
        port, metrics, agent = free_ports(3)
        file = folder / "council.toml"
        file.write_text(COUNCIL.format(port=port, metrics=metrics, agent=agent, a=a.port, b=b.port))
        with running(["council", "up", str(file), "--state", str(folder / "s")], folder / "log"):
            until(lambda: ready(port), "the council answers")
            yield Bench(port, metrics, agent, a, b)


@pytest.fixture(autouse=True)
def whole_again(bench: Bench) -> Iterator[None]:
    bench.a.served = bench.b.served = bench.a.left = 0
    yield
    bench.a.mode = "well"
    bench.settled()


@contextmanager
def stream(bench: Bench, session: object) -> Iterator[socket.socket]:
    """A client that has seen the first event and may leave at any time."""
    body = b'{"model": "demo", "stream": true}'
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nX-Session-Id: {session}\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", bench.port), 10) as raw:
        raw.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        seen = b""
        while b"data:" not in seen:
            seen += raw.recv(65536)
        yield raw


def answered(answers: list[Answer]) -> bool:
    return all(a.status == 200 and (b"[DONE]" in a.body or b"spoken" in a.body) for a in answers)


def test_an_instance_that_refuses_connections_is_passed_over_and_comes_back(bench: Bench) -> None:
    bench.a.refuse()
    try:
        assert answered(bench.twenty())
        until(lambda: bench.up() == 1, "a is out of the rotation")
    finally:
        bench.a.accept()
    bench.settled()
    answers = bench.twenty()
    assert {a.headers["x-council-instance"] for a in answers} == {"a", "b"}


def test_an_instance_that_never_answers_delays_its_requests_only_until_it_is_out(bench: Bench) -> None:
    bench.a.mode = "silent"
    begun = time.monotonic()
    assert answered(bench.twenty())
    assert bench.up() == 1
    assert time.monotonic() - begun < 10  # the answer's own timeout is half an hour
    assert bench.a.left >= 1


def test_a_loading_instance_is_passed_over(bench: Bench) -> None:
    bench.a.mode = "loading"
    assert answered(bench.twenty())
    assert {a.headers["x-council-instance"] for a in bench.twenty()} == {"b"}


def test_a_stream_that_breaks_is_visibly_cut_and_never_sent_again(bench: Bench) -> None:
    before = bench.read("haproxy_server_server_aborts_total", "a")
    bench.a.mode = "cut"
    cut = 0
    for session in range(20):
        try:
            assert b"[DONE]" in bench.ask(session, stream=True).body
        except OSError:
            cut += 1
        except Exception as error:
            assert type(error).__name__ == "IncompleteRead"
            cut += 1
    assert cut == bench.a.served > 0
    assert bench.a.served + bench.b.served == 20
    assert bench.read("haproxy_server_server_aborts_total", "a") - before == cut


def test_a_client_fault_is_passed_on_and_not_tried_elsewhere(bench: Bench) -> None:
    bench.a.mode = "bad"
    answers = bench.twenty()
    assert [a.status for a in answers].count(400) == bench.a.served > 0
    assert bench.a.served + bench.b.served == 20
    assert bench.up() == 2


def test_an_instance_that_drains_gets_nothing_new_and_finishes_what_runs(bench: Bench) -> None:
    session = bench.one_of_a()
    bench.a.mode = "endless"
    with stream(bench, session) as raw:
        bench.a.mode = "draining"
        until(lambda: bench.ask(session).headers["x-council-instance"] == "b", "a gets nothing new")
        time.sleep(1.0)  # several times what it takes to mark an instance down
        for _ in range(5):
            assert b"number" in raw.recv(65536)
        assert bench.a.left == 0
    until(lambda: bench.a.left == 1, "the instance hears that the client has left")


def test_a_client_that_leaves_is_reported_to_the_instance(bench: Bench) -> None:
    bench.a.mode = bench.b.mode = "endless"
    try:
        for session in range(2):
            with stream(bench, session):
                pass
        until(lambda: bench.a.left + bench.b.left == 2, "both instances hear it")
    finally:
        bench.b.mode = "well"


def test_the_guardians_word_takes_a_hollow_instance_out(bench: Bench) -> None:
    session = bench.one_of_a()
    bench.a.mode = "hollow"
    assert bench.ask(session).body == b""  # HAProxy itself cannot know
    with socket.create_server(("127.0.0.1", bench.agent)) as agent:
        agent.settimeout(10)

        def say(word: bytes) -> None:
            connection, _ = agent.accept()
            with connection:
                name = connection.recv(100).strip()
                connection.sendall((word if name == b"a" else b"up") + b"\n")

        for _ in range(4):
            say(b"down")
        until(lambda: bench.up() == 1, "a is out of the rotation")
        assert b"spoken" in bench.ask(session).body
        for _ in range(4):
            say(b"up")


def home(bench: Bench, body: object, **headers: str) -> str:
    answer = ask(f"http://127.0.0.1:{bench.port}{PATH}", body, **headers)
    assert answer.status == 200
    return answer.headers["x-council-instance"]


def body_of(said: object, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "system", "content": "You."}, {"role": "user", "content": said}], **more}


def test_a_conversation_is_known_by_header_then_user_then_first_user_message(bench: Bench) -> None:
    names = [f'name \\ "{n}" ü' for n in range(12)]
    by_message = [home(bench, body_of(name)) for name in names]
    assert set(by_message) == {"a", "b"}
    assert [home(bench, body_of([{"type": "text", "text": name}])) for name in names] == by_message
    later = [{"role": "assistant", "content": "and?"}, {"role": "user", "content": "more"}]
    grown = [body_of(name, model="demo") for name in names]
    for body in grown:
        body["messages"] = [*body["messages"], *later]  # type: ignore[misc]
    assert [home(bench, body) for body in grown] == by_message
    by_user = [home(bench, body_of(name, user="one")) for name in names]
    assert len(set(by_user)) == 1
    by_header = [home(bench, body_of("x", user="one"), x_session_id=name[-4]) for name in names]
    assert set(by_header) == {"a", "b"}


def test_requests_that_nothing_is_known_of_are_spread(bench: Bench) -> None:
    assert {home(bench, {"messages": []}) for _ in range(4)} == {"a", "b"}


def test_odd_bodies_are_routed_all_the_same(bench: Bench) -> None:
    deep: object = 1
    for _ in range(60):
        deep = {"x": [deep]}
    assert home(bench, {"tools": deep, "model": "demo", "messages": []}) in "ab"  # deeper than json_query looks
    assert home(bench, {"stop": ["\\"] * 150_000, "model": "demo"}) in "ab"  # more than the script will read
    assert home(bench, {"messages": [1, None, {"role": "user"}, {"role": "user", "content": [5, {"text": 7}]}]}) in "ab"
    unknown = ask(f"http://127.0.0.1:{bench.port}{PATH}", {"tools": deep, "model": 'de"mo\\'})
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "model_not_found")
