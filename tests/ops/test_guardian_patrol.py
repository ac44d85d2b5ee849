"""A real guardian over real daemons: frozen, dead, hanging, hollow, and one that is only busy."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fake_instances import fakes
from instances import Answer, Process, ask, end, free_ports, ready, running, serve, until
from tiny_models import ABCD, scripted

NAMES = ("busy", "dying", "hanging")
# A daemon whose rounds do what the file $FAULT says.
FAULTY = """
import os, pathlib, sys, time
import soloist.executor.prefill as prefill, soloist.executor.rounds as rounds, soloist.__main__ as m
fault, turn, advance = pathlib.Path(os.environ["FAULT"]), rounds.Rounds.turn, prefill.Prefill.advance
def asked(what):
    return fault.exists() and fault.read_text() == what
def faulty_turn(self):
    if asked("hang"):
        time.sleep(600)
    if asked("die"):
        raise SystemError("injected")
    turn(self)
def slow_advance(self, network, chunk):
    if asked("slow"):
        time.sleep(0.2)
        chunk = min(chunk, 16)
    return advance(self, network, chunk)
rounds.Rounds.turn, prefill.Prefill.advance = faulty_turn, slow_advance
sys.exit(m.main())
"""
STRICT = (
    "--every=0.25", "--ready-within=0.8", "--deep-every=0.5", "--deep-within=0.8", "--stall-after=3", "--misses=3",
    "--backoff=1.5", "--backoff-cap=3", "--max-actions=2", "--report-at=00:00",
)  # fmt: skip
# Kills what it is given a process number for; the test restarts it, as launchd and systemd would.
ACT = 'echo "$1 $2" >> "$0/actions"; [ -e "$0/$1.pid" ] && kill -9 $(cat "$0/$1.pid"); exit 0'


@dataclass
class Ward:
    folder: Path
    ports: dict[str, int]
    face: int
    agent: int
    processes: dict[str, Process] = field(default_factory=dict)

    def start(self, name: str) -> None:
        fault = self.folder / f"{name}.fault"
        self.processes[name] = serve(
            self.folder / "model", self.ports[name], "--stall-after=1", program=FAULTY, FAULT=str(fault)
        )

    def inject(self, name: str, fault: str | None) -> float:
        """Returns the time, as the patrol log tells it."""
        file = self.folder / f"{name}.fault"
        file.write_text(fault) if fault else file.unlink()
        return time.time()

    def log(self, name: str, event: str = "visit", since: float = 0.0) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (self.folder / "patrol.jsonl").read_text().splitlines(keepends=False)]
        return [
            line
            for line in lines
            if line.get("name") == name and line["event"] == event and _seconds(line) >= since
        ]  # fmt: skip

    def words(self, name: str, since: float = 0.0) -> list[str]:
        return [line["verdict"] for line in self.log(name, since=since)]

    def actions(self, name: str) -> list[str]:
        file = self.folder / "actions"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [verdict for acted_on, verdict in lines if acted_on == name]

    def opinion(self, name: str) -> Any:
        return ask(f"http://127.0.0.1:{self.face}/instances").json[name]

    def until_acted(self, name: str, since: float) -> str:
        until(lambda: self.log(name, "acted", since), f"something is done about {name}")
        seen = _seconds(next(line for line in self.log(name, since=since) if line["misses"]))
        acted = _seconds(self.log(name, "acted", since)[0])
        print(f"{name}: first miss after {seen - since:.2f} s, action after {acted - since:.2f} s")
        return str(self.log(name, "acting", since)[0]["verdict"])


def _seconds(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["at"]).timestamp()


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    folder = tmp_path_factory.mktemp("guardian")
    scripted(folder / "model", dist=ABCD)
    *ports, face, agent = free_ports(len(NAMES) + 2)
    ward = Ward(folder, dict(zip(NAMES, ports, strict=True)), face, agent)
    for name in NAMES:
        ward.start(name)
    try:
        with fakes("hollow") as (hollow,):
            for name in NAMES:
                until(lambda name=name: ready(ward.ports[name]), f"{name} is ready")  # type: ignore[misc]
            watch = [
                f"--watch={name}=http://127.0.0.1:{port}"
                for name, port in (ward.ports | {"hollow": hollow.port}).items()
            ]
            files = [f"--patrol-log={folder / 'patrol.jsonl'}", f"--report-folder={folder / 'reports'}"]
            faces = [f"--listen=127.0.0.1:{face}", f"--agent=127.0.0.1:{agent}"]
            command = f"--command=sh -c '{ACT}' {folder} {{name}} {{verdict}}"
            words = ["guardian", *watch, *STRICT, *files, *faces, command]
            with running(words, folder / "guardian.log") as guardian:
                ward.processes["guardian"] = guardian
                everyone = (*NAMES, "hollow")
                until((folder / "patrol.jsonl").exists, "the first visit")
                until(lambda: all("well" in ward.words(name) for name in everyone), "all are well")
                hollow.mode = "hollow"
                ward.inject("hollow", "hollow")
                yield ward
    finally:
        for process in ward.processes.values():
            process.kill()
            end(process)


def test_a_long_prefill_that_ticks_is_busy_and_is_never_touched(ward: Ward) -> None:
    since = ward.inject("busy", "slow")
    answers: list[Answer] = []
    body = {"prompt": "x" * 3000, "max_tokens": 1}
    client = threading.Thread(
        target=lambda: answers.append(ask(f"http://127.0.0.1:{ward.ports['busy']}/v1/completions", body))
    )
    client.start()
    until(lambda: ward.words("busy", since).count("busy") >= 6, "many visits during the prefill")
    assert set(ward.words("busy", since)) <= {"well", "busy"}
    ward.inject("busy", None)
    client.join()
    assert answers[0].status == 200
    assert ward.actions("busy") == []
    until(lambda: ward.words("busy")[-1] == "well", "it is well again")


def test_a_hollow_instance_is_found_by_the_token_that_it_does_not_give(ward: Ward) -> None:
    since = (ward.folder / "hollow.fault").stat().st_mtime
    assert ward.until_acted("hollow", since) == "hollow"
    assert ward.opinion("hollow")["red"]


def test_an_executor_that_dies_for_good_is_dead(ward: Ward) -> None:
    assert ward.until_acted("dying", ward.inject("dying", "die")) in ("dead", "sick")
    until(lambda: ward.words("dying")[-1] == "dead", "the daemon says so itself")


def test_a_step_that_hangs_is_wedged(ward: Ward) -> None:
    assert ward.until_acted("hanging", ward.inject("hanging", "hang")) == "wedged"


def test_a_frozen_process_is_restarted_and_is_well_again(ward: Ward) -> None:
    process = ward.processes["busy"]
    (ward.folder / "busy.pid").write_text(str(process.pid))
    since = time.time()
    os.kill(process.pid, signal.SIGSTOP)
    assert ward.until_acted("busy", since) == "frozen"
    assert process.wait(10) == -signal.SIGKILL
    ward.start("busy")
    began = time.time()
    until(lambda: "well" in ward.words("busy", began), "it is well again")
    print(f"busy: well again {time.time() - began:.2f} s after its restart")
    assert not ward.opinion("busy")["red"]


def test_actions_pause_longer_and_longer_and_then_end(ward: Ward) -> None:
    until(lambda: ward.log("hollow", "gave_up"), "it gives up on hollow")
    first, second = (_seconds(line) for line in ward.log("hollow", "acted"))
    assert second - first >= 1.5
    assert ward.actions("hollow") == ["hollow", "hollow"]


def test_agents_are_told_what_the_guardian_thinks(ward: Ward) -> None:
    import socket

    def told(name: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", ward.agent), 5) as raw:
            raw.sendall(name + b"\n")
            return raw.recv(100)

    assert told(b"hollow") == b"down\n"
    assert told(b"busy") == b"up\n"
    assert told(b"nobody") == b"up\n"


def test_its_own_figures_name_every_instance(ward: Ward) -> None:
    text = ask(f"http://127.0.0.1:{ward.face}/metrics").body.decode()
    assert 'soloist_guardian_red{instance="hollow"} 1.0' in text
    assert 'soloist_guardian_actions_total{instance="hollow",kind="command",outcome="ok"} 2.0' in text
    assert 'soloist_guardian_visits_total{instance="busy",verdict="busy"}' in text
    assert 'soloist_guardian_probe_seconds_count{instance="busy",probe="completion"}' in text


def test_a_report_comes_when_asked_for_and_at_the_end(ward: Ward) -> None:
    """Runs last: it ends the guardian."""
    ward.processes["guardian"].send_signal(signal.SIGUSR1)
    folder = ward.folder / "reports"
    until(lambda: folder.exists() and list(folder.iterdir()), "a report")
    (file,) = folder.iterdir()
    text = file.read_text()
    assert "hollow: well in" in text and "command ok 2" in text and "last fault: hollow" in text
    time.sleep(1.1)  # reports are named by the second
    assert end(ward.processes["guardian"]) == 0
    assert len(list(folder.iterdir())) == 2
