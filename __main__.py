"""The command line: `soloist serve | models | lora | doctor`. What a command needs is imported when it is called."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from . import __version__

COMMANDS = {
    "serve": "serve a model over HTTP",
    "models": "list, pull, import and remove models",
    "lora": "inspect, merge and gate adapters",
    "doctor": "check this machine and installation",
    "bench": "measure speed, alone and beside other servers",
    "guardian": "patrol running instances and act on wedged ones",
    "council": "put several instances behind one address, by HAProxy",
    "service": "install Soloist under launchd or systemd",
}
Subparsers = Any  # argparse keeps the type private


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="soloist", description="An OpenAI-compatible inference daemon on MLX.")
    parser.add_argument("--version", action="version", version=f"soloist {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, title="commands")
    called = next((word for word in words if word in COMMANDS), None)
    for name, help_text in COMMANDS.items():
        if name != called:
            subparsers.add_parser(name, help=help_text)
        elif name == "serve":
            _add_serve(subparsers)
        else:
            import_module(f".ops.{name}_command", __package__).add_parser(subparsers)
    arguments = parser.parse_args(words)
    run: Callable[[argparse.Namespace], int] = arguments.run
    return run(arguments)


def _add_serve(subparsers: Subparsers) -> None:
    from .daemon.sources import add_flags

    parser = subparsers.add_parser("serve", help=COMMANDS["serve"], allow_abbrev=False)
    add_flags(parser)
    parser.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    from .daemon import exit_codes
    from .daemon.config import ConfigError
    from .daemon.sources import read_config, to_toml

    try:
        config = read_config(arguments, os.environ)
    except ConfigError as error:
        print(f"soloist: {error}", file=sys.stderr)
        return exit_codes.CONFIGURATION
    if arguments.print_config:
        print(to_toml(config), end="")
        return exit_codes.CLEAN
    from .daemon.serve import run

    return run(config, _find_model, _find_adapter)


def _find_model(reference: str) -> Path:
    """The folder of a model, fetched first if need be. Raises CannotServe. Runs in a worker thread."""
    from .daemon.start import CannotServe
    from .ops.model_errors import ModelError
    from .ops.model_store import resolve
    from .ops.progress import shown

    try:
        with shown() as progress:
            folder = resolve(reference, progress=progress)
    except ModelError as error:
        raise CannotServe(str(error), error.exit_code) from None
    return folder


def _find_adapter(reference: str, model: Path) -> Path:
    """The folder of an adapter that fits the model, as far as headers tell. Raises CannotServe. No MLX."""
    from .daemon import exit_codes
    from .daemon.start import CannotServe
    from .lora.check import inspect
    from .lora.errors import AdapterError
    from .ops.lora_store import resolve_adapter
    from .ops.model_errors import ModelError

    try:
        folder = resolve_adapter(reference)
        inspect(folder, model)
    except (ModelError, AdapterError) as error:
        raise CannotServe(str(error), exit_codes.ADAPTER_REFUSED) from None
    return folder


if __name__ == "__main__":
    sys.exit(main())
