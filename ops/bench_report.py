"""What a run of the bench says: a table for people, and one JSON document with every raw sample."""

import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .bench_noise import MACHINE, NOTABLE
from .bench_ratios import Line, lines
from .bench_run import Run
from .bench_servers import versions
from .bench_sizes import FULL
from .bench_stats import Figures, Summary


def document(run: Run) -> dict[str, Any]:
    """`ratios` is flat: name to median, null where it was not measured."""
    figures = Figures(run.samples)
    decided = list(lines(figures, run.subject, run.others))
    medians: dict[str, dict[str, float]] = {}
    for server, metric in figures.measured:
        medians.setdefault(server, {})[metric] = figures.summary(server, metric).median
    return {
        "ratios": {line.name: _median(line) for line in decided if line.is_ratio},
        "figures": {line.name: _median(line) for line in decided if not line.is_ratio},
        "spread": {line.name: [line.value.low, line.value.high] for line in decided if line.value is not None},
        "targets": {line.name: str(line.target) for line in decided if str(line.target)},
        "medians": medians,
        "samples": [asdict(sample) for sample in run.samples],
        "not_measured": run.not_measured,
        "subject": run.subject,
        "servers": run.servers,
        "device": run.device,
        "blas": run.blas,
        "versions": versions(),
        "machine": {"system": platform.platform(), "processor": platform.machine(), "load_average": run.load_average},
        "sizes": asdict(run.sizes),
        "seed": run.seed,
        "prompt_tokens_a_word": run.tokens_a_word,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.began)),
        "seconds": run.seconds,
    }


def _median(line: Line) -> float | None:
    return None if line.value is None else line.value.median


def write_json(run: Run, file: Path) -> None:
    file.write_bytes(orjson.dumps(document(run), option=orjson.OPT_INDENT_2) + b"\n")


def print_tables(run: Run) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    figures = Figures(run.samples)
    servers = dict.fromkeys(server for server, _ in figures.measured if server != MACHINE)
    console.print(_figures(figures, list(servers)))
    console.print(_ratios(list(lines(figures, run.subject, run.others))))
    for scenario, reason in run.not_measured.items():
        console.print(f"[yellow]not measured[/] {scenario}: {escape(reason)}")
    if run.sizes.prefix < FULL.prefix:
        console.print("[yellow]short prompts:[/] the targets are meant for the full lengths, without --quick")
    if noisy := _noisy(run):
        console.print(
            f"[yellow]other processes were busy[/] during {', '.join(noisy)}: measure again on a quiet machine"
        )
    busy = f", load average {run.load_average[0]:.1f} at the start" if run.load_average else ""
    console.print(escape(f"{run.device or 'device unknown'}, BLAS {run.blas or 'unknown'}, {run.seconds:.0f} s{busy}"))


def _noisy(run: Run) -> list[str]:
    """Scenarios beside which other processes used a notable part of a core, and how much at most."""
    most: dict[str, float] = {}
    for sample in run.samples:
        if sample.server == MACHINE:
            most[sample.scenario] = max(sample.value, most.get(sample.scenario, 0.0))
    return [f"{scenario} ({cores:.1f} cores)" for scenario, cores in most.items() if cores >= NOTABLE]


def _figures(figures: Figures, servers: Sequence[str]) -> Table:
    table = Table(
        "figure", *servers, title="median (lowest to highest)", box=None, pad_edge=False, title_justify="left"
    )
    for metric in dict.fromkeys(metric for server, metric in figures.measured if server != MACHINE):
        cells = []
        for server in servers:
            here = (server, metric) in figures.measured
            cells.append(_shown(figures.summary(server, metric)) if here else "")
        table.add_row(metric, *cells)
    return table


def _ratios(decided: Sequence[Line]) -> Table:
    table = Table("decides", "median", "target", "", title="\nratios", box=None, pad_edge=False, title_justify="left")
    for line in decided:
        if line.value is None:
            if str(line.target):
                table.add_row(line.name, "", str(line.target), "[dim]not measured[/]")
            continue
        mark = (
            ""
            if not str(line.target)
            else "[green]kept[/]"
            if line.target.kept(line.value.median)
            else "[red]missed[/]"
        )
        table.add_row(line.name, _shown(line.value), str(line.target), mark)
    return table


def _shown(value: Summary) -> str:
    if value.count == 1:
        return _number(value.median)
    return f"{_number(value.median)} ({_number(value.low)} to {_number(value.high)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
