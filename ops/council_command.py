"""`soloist council render|up`: several instances behind one address, by HAProxy."""

import argparse
import sys
from pathlib import Path

from ..daemon.exit_codes import CONFIGURATION
from . import council_run
from .council_config import CouncilError


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `council` to the root command; `run` is left in the parsed arguments."""
    parser = subparsers.add_parser("council", help="put several instances behind one address", description=__doc__)
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    rendering = actions.add_parser("render", help="write HAProxy's configuration and let HAProxy check it")
    rendering.add_argument("--no-check", action="store_true", help="do not ask haproxy, which need not be installed")
    running = actions.add_parser("up", help="render, check and run until a signal comes; SIGHUP reads the file again")
    for action in (rendering, running):
        action.add_argument("file", metavar="COUNCIL.toml", type=Path)
        action.add_argument("--state", metavar="FOLDER", type=Path, help="where the rendered files go")


def run(args: argparse.Namespace) -> int:
    """78 when the council's file is wrong or HAProxy is missing; else HAProxy's own exit code."""
    folder = args.state or council_run.state_folder(args.file)
    try:
        if args.action == "up":
            return council_run.up(args.file, folder)
        configuration = council_run.write(args.file, folder)
        if not args.no_check:
            council_run.check(council_run.find_haproxy(), configuration)
        print(configuration)
    except CouncilError as error:
        print(f"soloist: {error}", file=sys.stderr)
        return CONFIGURATION
    return 0
