"""A council's own life: how it leaves, reads its file again, whom it believes, and what it would be without retries."""

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_instances import FakeInstance, fakes
from instances import Process, ask, free_ports, ready, running, until
from soloist.ops.council_run import find_haproxy, write

SETTINGS = """
address = "127.0.0.1:{port}"
guardian = "127.0.0.1:{agent}"
largest_body = "1MiB"
check_every = 0.15
check_timeout = 0.4
check_rise = 1
leave_within = 10
"""
PATH = "/v1/chat/completions"


@dataclass
class Town:
    folder: Path
    port: int
    agent: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def file(self) -> Path:
        return self.folder / "council.toml"

    def settle(self, *instances: FakeInstance) -> None:
        """Write the council's file for these instances."""
        lines = [
            f'instances.{i.name} = {{ address = "127.0.0.1:{i.port}", models = ["demo"] }}' for i in instances
        ]  # fmt: skip
        self.file.write_text(SETTINGS.format(port=self.port, agent=self.agent) + "\n".join(lines))

    @contextmanager
    def council(self) -> Iterator[Process]:
        words = ["council", "up", str(self.file), "--state", str(self.folder / "s")]
        with running(words, self.folder / "log") as process:
            until(lambda: ready(self.port), "the council answers")
            yield process

    def up(self) -> int:
        return int(ask(f"{self.url}/health").json["instances"]["demo"])

    def twenty(self) -> list[tuple[int, bytes]]:
        answers = [ask(self.url + PATH, {"model": "demo"}, x_session_id=str(n)) for n in range(20)]
        return [(answer.status, answer.body) for answer in answers]


@pytest.fixture
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    return Town(tmp_path_factory.mktemp("t"), *free_ports(2))


def test_a_council_that_is_asked_to_stop_lets_running_requests_finish(town: Town) -> None:
    with fakes("a") as (a,):
        town.settle(a)
        with town.council() as council:
            a.mode = "endless"
            bodies: list[bytes] = []
            body = {"model": "demo", "stream": True}
            client = threading.Thread(target=lambda: bodies.append(ask(town.url + PATH, body).body))
            client.start()
            until(lambda: a.served, "the stream has begun")
            council.send_signal(signal.SIGTERM)
            until(lambda: not ready(town.port), "nobody new is let in")
            a.mode = "well"  # its streams end after their current events
            client.join()
            assert bodies[0].endswith(b"data: [DONE]\n\n")
            assert council.wait(10) == 0


def test_a_council_reads_its_file_again_and_keeps_the_old_one_when_it_is_wrong(town: Town) -> None:
    with fakes("a", "b") as (a, b):
        town.settle(a)
        with town.council() as council:
            assert town.up() == 1
            town.settle(a, b)
            council.send_signal(signal.SIGHUP)
            until(lambda: ready(town.port) and town.up() == 2, "the second instance is in the rotation")
            town.file.write_text("nonsense")
            council.send_signal(signal.SIGHUP)
            until(lambda: "stays as it was" in (town.folder / "log").read_text(), "it complains")
            assert {status for status, _ in town.twenty()} == {200}


def test_a_hollow_instance_is_found_by_the_guardian_and_left_out_until_it_is_well(town: Town) -> None:
    with fakes("a", "b") as (a, b):
        town.settle(a, b)
        watch = [f"--watch={i.name}=http://127.0.0.1:{i.port}" for i in (a, b)]
        strict = ["--every=0.2", "--deep-every=0", "--misses=2", f"--agent=127.0.0.1:{town.agent}"]
        log = f"--patrol-log={town.folder / 'patrol'}"
        (face,) = free_ports(1)
        words = ["guardian", *watch, *strict, log, f"--listen=127.0.0.1:{face}"]
        with town.council(), running(words, town.folder / "guardian.log"):
            until(lambda: (town.folder / "patrol").exists(), "the guardian has begun")
            a.mode = "hollow"
            until(lambda: town.up() == 1, "a is out of the rotation")
            assert b"" not in {body for _, body in town.twenty()}
            a.mode = "well"
            until(lambda: town.up() == 2, "a is in the rotation again")


MUTANTS = {
    "no retries": ("retry-on conn-failure empty-response junk-response response-timeout 503", "retry-on none"),
    "retries on the same instance": ("option redispatch 1", "no option redispatch"),
}


@pytest.mark.parametrize("mutant", [None, *MUTANTS])
def test_a_loading_instance_is_felt_by_clients_unless_the_configuration_is_whole(
    town: Town, mutant: str | None
) -> None:
    with fakes("a", "b") as (a, b), ExitStack() as stack:
        town.settle(a, b)
        text = write(town.file, town.folder / "s").read_text()
        old, new = MUTANTS[mutant] if mutant else ("check inter", "check inter")
        assert old in text
        lines = text.replace(old, new).splitlines()
        # The checks come late: what is seen in between is what retries are for.
        lines = [line.replace("inter 150ms", "inter 20s fastinter 20s downinter 20s") for line in lines]
        changed = town.folder / "changed.cfg"
        changed.write_text("\n".join(lines) + "\n")
        with (town.folder / "haproxy.log").open("wb") as log:
            process = stack.enter_context(
                subprocess.Popen([find_haproxy(), "-f", str(changed)], stdout=log, stderr=log)
            )  # fmt: skip
        stack.callback(process.kill)
        until(lambda: ready(town.port), "the proxy answers")
        a.mode = "loading"
        statuses = [status for status, _ in town.twenty()]
        assert (503 in statuses) == (mutant is not None)


def test_the_control_folder_is_the_users_own(town: Town) -> None:
    with fakes("a") as (a,):
        town.settle(a)
        write(town.file, town.folder / "s")
        assert (town.folder / "s").stat().st_mode & 0o077 == 0
