"""A real daemon as systemd would run it: when it says that it is ready, that it lives, and when it stops saying so."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from instances import PATIENCE, ask, end, free_ports, ready, serve
from tiny_models import ABCD, scripted

# A daemon whose rounds hang once the file $FAULT exists.
HANGING = """
import os, pathlib, sys, time
import soloist.executor.rounds as rounds, soloist.__main__ as m
fault, turn = pathlib.Path(os.environ["FAULT"]), rounds.Rounds.turn
def hanging_turn(self):
    if fault.exists():
        self.pulse.wake()
        time.sleep(600)
    turn(self)
rounds.Rounds.turn = hanging_turn
sys.exit(m.main())
"""
WATCHDOG_S = 0.6


class Ear:
    """systemd's end of the socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(PATIENCE)

    def hear(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self._socket.recv(4096).decode().splitlines())

    def until(self, field: str) -> list[dict[str, str]]:
        """Everything up to the first message that has the field."""
        heard = [self.hear()]
        while field not in heard[-1]:
            heard.append(self.hear())
        return heard

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[Ear]:
    ear = Ear(tmp_path / "notify")
    yield ear
    ear.close()


def test_a_daemon_under_systemd_is_ready_when_a_token_was_drawn_and_fed_while_it_makes_steps(
    tmp_path: Path, ear: Ear
) -> None:
    model, (port,) = scripted(tmp_path / "model", dist=ABCD), free_ports(1)
    variables = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6))}
    with ExitStack() as stack:
        process = serve(
            model, port, "--stall-after=0.5", program=HANGING, FAULT=str(tmp_path / "fault"), **variables
        )  # fmt: skip
        stack.callback(end, process)
        stack.callback(process.kill)
        before = ear.until("READY")
        assert ready(port)
        assert all(said["STATUS"].startswith("loading") for said in before[:-1])
        ear.until("WATCHDOG")
        (tmp_path / "fault").touch()
        assert ask(f"http://127.0.0.1:{port}/v1/completions", {"prompt": "x", "max_tokens": 5}).status == 503
        while not (said := ear.hear())["STATUS"].startswith("stalled"):
            pass
        for _ in range(5):  # longer than the watchdog's time
            assert "WATCHDOG" not in said
            said = ear.hear()


def test_a_daemon_that_is_asked_to_stop_says_so(tmp_path: Path, ear: Ear) -> None:
    model, (port,) = scripted(tmp_path / "model", dist=ABCD), free_ports(1)
    process = serve(model, port, NOTIFY_SOCKET=str(tmp_path / "notify"))
    with ExitStack() as stack:
        stack.callback(end, process)
        ear.until("READY")
        os.kill(process.pid, signal.SIGTERM)
        ear.until("STOPPING")
        assert process.wait(PATIENCE) == 0
