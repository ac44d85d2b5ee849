"""What systemd hears, on a real datagram socket."""

import asyncio
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from soloist.daemon.config import Config
from soloist.daemon.keys import read_keys
from soloist.daemon.notify import find_supervisor, watch
from soloist.daemon.state import NO_EXECUTOR, Daemon

FED_S = 0.3


class Executor:
    """Says whatever state it is given; health is all that is asked of it here."""

    def __init__(self, state: Any) -> None:
        self.state, self.reason = state, None

    def health(self) -> Any:
        return replace(NO_EXECUTOR, state=self.state, reason=self.reason)


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(tmp_path / "notify"))
        ear.settimeout(5)
        yield ear


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    config = Config(port=0)
    with ThreadPoolExecutor(1) as pool:
        yield Daemon(config, read_keys(config), pool)


def environment(ear: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": ear.getsockname(), "WATCHDOG_USEC": str(int(FED_S * 1e6)), **more}


async def heard(ear: socket.socket) -> dict[str, str]:
    text = (await asyncio.get_running_loop().run_in_executor(None, ear.recv, 4096)).decode()
    return dict(line.split("=", 1) for line in text.splitlines())


async def until(ear: socket.socket, field: str) -> dict[str, str]:
    while field not in (said := await heard(ear)):
        pass
    return said


async def test_systemd_hears_loading_then_ready_once_then_life_then_stopping(
    ear: socket.socket, daemon: Daemon
) -> None:
    task = asyncio.create_task(watch(daemon, environment(ear)))
    said = await heard(ear)
    assert said["STATUS"].startswith("loading")
    assert int(said["EXTEND_TIMEOUT_USEC"]) > 1e6
    assert "READY" not in said
    daemon.engine, daemon.served = Executor("ready"), type("Served", (), {"name": "m"})()  # type: ignore[assignment]
    assert (await until(ear, "READY"))["WATCHDOG"] == "1"
    said = await until(ear, "WATCHDOG")
    assert "READY" not in said and "EXTEND_TIMEOUT_USEC" not in said
    daemon.draining = True
    assert (await until(ear, "STOPPING"))["WATCHDOG"] == "1"
    task.cancel()


@pytest.mark.parametrize("state", ["stalled", "dead", "failed"])
async def test_an_executor_that_makes_no_step_is_not_fed(ear: socket.socket, daemon: Daemon, state: str) -> None:
    executor = Executor(state)
    executor.reason = "no step\nfor 61 s"  # type: ignore[assignment]
    daemon.engine, daemon.served = executor, type("Served", (), {"name": "m"})()  # type: ignore[assignment]
    task = asyncio.create_task(watch(daemon, environment(ear)))
    for _ in range(4):
        assert await heard(ear) == {"STATUS": f"{state}: no step for 61 s"}
    executor.state, executor.reason = "ready", None
    assert "READY" in await until(ear, "WATCHDOG")
    task.cancel()


async def test_without_a_supervisor_nothing_is_done_and_a_deaf_one_does_no_harm(daemon: Daemon, tmp_path: Path) -> None:
    await watch(daemon, {})
    task = asyncio.create_task(watch(daemon, {"NOTIFY_SOCKET": str(tmp_path / "nobody")}))
    await asyncio.sleep(0.05)
    assert not task.done()
    task.cancel()


def test_a_watchdog_meant_for_another_process_is_not_fed(ear: socket.socket) -> None:
    ours = find_supervisor(environment(ear, WATCHDOG_PID=str(os.getpid())))
    theirs = find_supervisor(environment(ear, WATCHDOG_PID="1"))
    assert ours is not None and theirs is not None
    assert ours.watchdog_s == FED_S and ours.pause_s == pytest.approx(FED_S / 3)
    assert theirs.watchdog_s is None


def test_an_abstract_socket_is_found() -> None:
    found = find_supervisor({"NOTIFY_SOCKET": "@soloist-test"})
    assert found is not None and found.address == "\0soloist-test"
