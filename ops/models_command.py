"""`soloist models list|pull|import|rm`: the models on this machine, from the command line."""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import demo_model, hub, imported_models, model_manifest
from .cache_folder import models_dir
from .imported_models import RESERVED
from .model_errors import ModelDamaged, ModelError, ModelUnsupported
from .model_folder import FolderFacts, check_folder
from .progress import shown


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `models` to the root command; `run` is left in the parsed arguments."""
    parser = subparsers.add_parser("models", help="list, fetch, import and remove models", description=__doc__)
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="show imported models and those in the Hugging Face cache")
    listing.add_argument("--json", action="store_true", help="print JSON instead of a table")
    pull = actions.add_parser("pull", help="fetch a model: `demo`, or a Hugging Face id")
    pull.add_argument("model", metavar="MODEL")
    importing = actions.add_parser("import", help="turn a GGUF file into a model folder, losslessly")
    importing.add_argument("file", metavar="FILE.gguf", type=Path)
    importing.add_argument("--name", help="what to call it (default: the file's own name)")
    removing = actions.add_parser("rm", help="delete an imported model")
    removing.add_argument("name", metavar="NAME")


def run(args: argparse.Namespace) -> int:
    """Do what the parsed arguments ask; the exit code is 0 or that of the ModelError met."""
    try:
        {"list": _list, "pull": _pull, "import": _import, "rm": _remove}[args.action](args)
    except ModelError as error:
        print(f"soloist: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("soloist: interrupted; nothing half-made was kept", file=sys.stderr)
        return 130
    return 0


def _pull(args: argparse.Namespace) -> None:
    with shown() as progress:
        if args.model == RESERVED:
            folder = demo_model.pull(progress, thorough=True)
        elif hub.looks_like_repository(args.model):
            folder = hub.snapshot(args.model, progress)
        else:
            raise ModelUnsupported(f"cannot pull {args.model!r}: `demo` or a Hugging Face id (org/name) can be pulled")
    check_folder(folder)
    print(folder)


def _import(args: argparse.Namespace) -> None:
    with shown() as progress:
        folder = imported_models.import_file(args.file, args.name, progress)
    print(folder)


def _remove(args: argparse.Namespace) -> None:
    freed = imported_models.remove(args.name)
    if args.name == RESERVED:
        freed += demo_model.forget_download()
    print(f"removed {args.name}, {_size(freed)} freed")


def _list(args: argparse.Namespace) -> None:
    rows = [_row(folder.name, folder) for folder in imported_models.shelved()]
    rows += [_fields(name, facts) for name, facts in hub.cached_models()]
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        print(f"no models yet in {models_dir()}; `soloist models pull demo` fetches one")
        return
    table = Table("name", "type", "weights", "size", "path", box=None, pad_edge=False)
    for row in rows:
        size = _size(int(str(row["bytes"]))) if row["bytes"] is not None else ""
        cells = (row["name"], row["type"], row["quantization"], size, row["path"])
        table.add_row(*(escape(str(cell)) for cell in cells))
    console = Console(width=None if sys.stdout.isatty() else 240)
    console.print(table)


def _row(name: str, folder: Path) -> dict[str, object]:
    """A line for an imported model; a damaged one is shown as such, so that it can be removed."""
    try:
        if reason := model_manifest.damage(folder):
            raise ModelDamaged(reason)
        return _fields(name, check_folder(folder))
    except ModelError as error:
        return {"name": name, "path": str(folder), "bytes": None, "type": "damaged", "quantization": str(error)}


def _fields(name: str, facts: FolderFacts) -> dict[str, object]:
    return {
        "name": name,
        "path": str(facts.path),
        "bytes": facts.bytes,
        "type": facts.model_type,
        "quantization": facts.quantization,
    }


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
