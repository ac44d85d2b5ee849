"""Real processes for the tests of operations: daemons, and Soloist's other commands, each killed at the end."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 40.0
COMMANDS = ("council", "guardian", "service")
# The commands of these tests, whether or not the command line lists them yet.
PROGRAM = f"import sys, soloist.__main__ as m; [m.COMMANDS.setdefault(c, c) for c in {COMMANDS}]; sys.exit(m.main())"
Process = subprocess.Popen[bytes]


def free_ports(count: int) -> list[int]:
    """Distinct ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", **more}


@contextmanager
def running(words: Sequence[str], log: Path, program: str = PROGRAM, **variables: str) -> Iterator[Process]:
    """`soloist WORDS`; its output goes to `log`. `program` may patch something before it calls main."""
    process = spawn(words, log, program, **variables)
    try:
        yield process
    finally:
        end(process)


def spawn(words: Sequence[str], log: Path, program: str = PROGRAM, **variables: str) -> Process:
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", program, *words], stdout=output, stderr=output, env=environment(**variables)
        )


def end(process: Process) -> int:
    """Ask, then insist. Returns the exit code."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(url: str, body: Any = None, timeout: float = PATIENCE, **headers: str) -> Answer:
    """One request; an error status is an answer, a broken connection raises OSError."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    spelled = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **spelled})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, {k.lower(): v for k, v in error.headers.items()}, error.read())


def until(true: Callable[[], Any], what: str, patience: float = PATIENCE) -> float:
    """Wait until something holds. Returns how many seconds that took."""
    begun = time.monotonic()
    while not true():
        assert time.monotonic() < begun + patience, f"never came true: {what}"
        time.sleep(0.03)
    return time.monotonic() - begun


def ready(port: int) -> bool:
    try:
        return ask(f"http://127.0.0.1:{port}/health/ready", timeout=2).status == 200
    except OSError:
        return False


def serve(folder: Path, port: int, *flags: str, program: str = PROGRAM, **variables: str) -> Process:
    """A daemon that will listen on `port`; its log lies beside the model folder."""
    words = ["serve", "--model", str(folder), "--port", str(port), *flags]
    return spawn(words, folder.parent / f"{port}.log", program, **variables)
