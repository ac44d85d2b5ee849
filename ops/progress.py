"""How long work tells how far it is: a plain callable, drawn as bars on a terminal and as lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

# (stage, bytes done, bytes in all or None while unknown)
Progress = Callable[[str, int, int | None], None]


def silent(stage: str, done: int, total: int | None) -> None:
    """Say nothing."""


def plain(stream: TextIO) -> Progress:
    """One line when a stage begins: what a log file wants."""
    seen: set[str] = set()

    def report(stage: str, done: int, total: int | None) -> None:
        if stage not in seen:
            seen.add(stage)
            print(f"{stage} ...", file=stream, flush=True)

    return report


@contextmanager
def shown(stream: TextIO | None = None) -> Iterator[Progress]:
    """Report on `stream` (standard error by default): bars if it is a terminal, plain lines if not."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield plain(stream)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(file=stream)) as bars:
        tasks = {}

        def report(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield report
