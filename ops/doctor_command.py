"""`soloist doctor`: is this machine fit to serve, and if not, what to do about it."""

import argparse
import json
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .doctor_checks import Finding, findings

MARKS = {"ok": "[green]ok[/]", "slow": "[yellow]slow[/]", "fail": "[red]fail[/]"}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `doctor` to the root command; `run` is left in the parsed arguments."""
    parser = subparsers.add_parser("doctor", help="check that this machine can serve", description=__doc__)
    parser.add_argument("--model", default="demo", help="the model to check, as for `serve` (default: demo)")
    parser.add_argument("--port", type=int, default=3301, help="the port that should be free (default: 3301)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print every finding. 0: fit to serve; 1: at least one check failed."""
    found = list(findings(args.model, args.port))
    if args.json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        _print_table(found)
    return int(any(finding.verdict == "fail" for finding in found))


def _print_table(found: list[Finding]) -> None:
    table = Table("check", "", "found", "remedy", box=None, pad_edge=False)
    for finding in found:
        table.add_row(finding.name, MARKS[finding.verdict], escape(finding.detail), escape(finding.remedy))
    console = Console()
    console.print(table)
    failed = [finding.name for finding in found if finding.verdict == "fail"]
    console.print(f"[red]not fit to serve: {', '.join(failed)}[/]" if failed else "[green]fit to serve[/]")
