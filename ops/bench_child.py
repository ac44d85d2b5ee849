"""Helper processes of the bench: one JSON line in, one JSON line out, until standard input closes."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

Answer = TypeVar("Answer")
PACKAGE = __name__.split(".")[0]


class ChildFault(Exception):
    """A helper process ended, did not answer in time, or answered that it could not."""


class Child:
    """One helper process. Used as a context manager; it ends with the block."""

    def __init__(self, module: str, arguments: Sequence[str] = ()) -> None:
        """module: its name among the ops, such as "bench_load"."""
        self.module = module
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{PACKAGE}.ops.{module}", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, question: Any, kind: type[Answer], within_s: float = 900.0) -> Answer:
        """Raises ChildFault."""
        assert self._process.stdin is not None and self._process.stdout is not None
        timer = threading.Timer(within_s, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(msgspec.json.encode(question) + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            timer.cancel()
        if not line:
            raise ChildFault(f"{self.module} ended without an answer (exit code {self._process.wait(10)})")
        fault = msgspec.json.decode(line, type=dict[str, msgspec.Raw]).get("fault")
        if fault is not None:
            raise ChildFault(f"{self.module}: {msgspec.json.decode(fault)}")
        return msgspec.json.decode(line, type=kind)

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def answer_lines(handle: Callable[[Any], Any], kind: Any) -> None:
    """The helper's side. Standard output is kept for answers; whatever else prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        try:
            answer = handle(msgspec.json.decode(line, type=kind))
        except Exception as error:
            answer = {"fault": f"{type(error).__name__}: {error}"}
        try:
            answers.write(msgspec.json.encode(answer) + b"\n")
            answers.flush()
        except BrokenPipeError:  # whoever asked has gone
            os._exit(1)
