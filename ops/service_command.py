"""`soloist service install|uninstall|status`: Soloist under launchd or systemd, started at login or boot.

What follows `--` is the command to supervise: `soloist service install -- serve --model demo --port 3301`.
"""

import argparse
import getpass
import os
import sys

from ..daemon import exit_codes
from ..daemon.config import ConfigError
from ..daemon.sources import add_flags, read_config
from .service_control import Launchd, Supervisor, Systemd
from .service_spec import ServiceError, describe

SUPERVISED = ("serve", "council", "guardian")
STOP_MARGIN_S = 10
OTHERS_STOP_S = 40


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `service` to the root command; `run` is left in the parsed arguments."""
    parser = subparsers.add_parser("service", help="keep Soloist running with launchd or systemd", description=__doc__)
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    install = actions.add_parser("install", help="write the service file and start the service; may be repeated")
    install.add_argument("--print", action="store_true", help="print the service file and change nothing")
    install.add_argument("--env", action="append", default=[], metavar="NAME[=VALUE]", help="set or pass on a variable")
    install.add_argument(
        "words", nargs="*", metavar="-- COMMAND", help="serve (default), council or guardian, and its flags"
    )
    actions.add_parser("uninstall", help="stop the service and remove its file; may be repeated")
    actions.add_parser("status", help="what the supervisor says; exit code 0 if it runs")
    for action in actions.choices.values():
        action.add_argument("--name", default="serve", help="which service, if there are several (default: serve)")
        action.add_argument("--system", action="store_true", help="systemd's own manager instead of the user's")
        action.add_argument("--run-as", metavar="USER", help="account of a --system service (default: who called sudo)")
        action.add_argument(
            "--supervisor", choices=("launchd", "systemd"), default="launchd" if sys.platform == "darwin" else "systemd"
        )


def run(args: argparse.Namespace) -> int:
    """78 for a wrong command to supervise, 1 when the supervisor refuses or, for status, does not run it."""
    words = list(getattr(args, "words", ()))
    if not words or words[0].startswith("-"):
        words.insert(0, "serve")
    try:
        supervisor = _supervisor(args, words[0])
        if args.action == "install":
            return _install(args, words, supervisor)
        if args.action == "status":
            running, text = supervisor.status(args.name)
            print(text.rstrip())
            return exit_codes.CLEAN if running else 1
        supervisor.uninstall(args.name)
        print(f"removed {supervisor.file(args.name)}")
    except ConfigError as error:
        print(f"soloist: {error}", file=sys.stderr)
        return exit_codes.CONFIGURATION
    except ServiceError as error:
        print(f"soloist: {error}", file=sys.stderr)
        return 1
    return exit_codes.CLEAN


def _supervisor(args: argparse.Namespace, command: str) -> Supervisor:
    if args.supervisor == "launchd":
        return Launchd()
    run_as = (args.run_as or os.environ.get("SUDO_USER") or getpass.getuser()) if args.system else None
    return Systemd(run_as, notifies=command == "serve")


def _install(args: argparse.Namespace, words: list[str], supervisor: Supervisor) -> int:
    if words[0] not in SUPERVISED:
        raise ServiceError(f"{words[0]!r} does not keep running; what can be supervised is {', '.join(SUPERVISED)}")
    service = describe(args.name, words, args.env, os.environ, _stop_within(words))
    if args.print:
        print(supervisor.text(service), end="")
        return exit_codes.CLEAN
    supervisor.install(service)
    print(f"installed {supervisor.file(args.name)}")
    return exit_codes.CLEAN


def _stop_within(words: list[str]) -> int:
    """Longer than the command's own grace time. A wrong flag or setting of `serve` is found here, before installing."""
    if words[0] != "serve":
        return OTHERS_STOP_S
    parser = argparse.ArgumentParser(prog="soloist serve", allow_abbrev=False)
    add_flags(parser)
    return round(read_config(parser.parse_args(words[1:]), os.environ).shutdown_grace) + STOP_MARGIN_S
