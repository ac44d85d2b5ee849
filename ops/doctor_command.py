"""`soloist doctor`: is this machine fit to serve with these settings, and if not, what to do about it."""

import argparse
import json
import os
import sys
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .. import __version__
from ..daemon import exit_codes
from ..daemon.config import ConfigError
from ..daemon.sources import add_flags, read_config
from .doctor_finding import Finding
from .doctor_rounds import findings

MARKS = {"ok": "[green]ok[/]", "slow": "[yellow]slow[/]", "fail": "[red]fail[/]"}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `doctor` to the root command; `run` is left in the parsed arguments."""
    parser = subparsers.add_parser(
        "doctor",
        help="check that this machine can serve",
        description=f"{__doc__} It takes the flags, variables and file of `serve`.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--quick", action="store_true", help="do not load the model")
    add_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print every finding. 0: fit to serve; 1: at least one check failed; 78: a setting is wrong."""
    try:
        config = read_config(args, os.environ)
    except ConfigError as error:
        print(f"soloist: {error}", file=sys.stderr)
        return exit_codes.CONFIGURATION
    found = list(findings(config, quick=args.quick))
    fit = not any(finding.verdict == "fail" for finding in found)
    if args.json:
        document = {"fit": fit, "version": __version__, "findings": [asdict(finding) for finding in found]}
        print(json.dumps(document, indent=2))
    else:
        _print_table(found)
    return 0 if fit else 1


def _print_table(found: list[Finding]) -> None:
    table = Table("check", "", "found", "remedy", box=None, pad_edge=False)
    for finding in found:
        table.add_row(finding.name, MARKS[finding.verdict], escape(finding.detail), escape(finding.remedy))
    console = Console()
    console.print(table)
    failed = [finding.name for finding in found if finding.verdict == "fail"]
    console.print(f"[red]not fit to serve: {', '.join(failed)}[/]" if failed else "[green]fit to serve[/]")
