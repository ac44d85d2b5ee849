"""From what a user calls a model to the folder that holds it, whole and servable.

A reference is, in this order: the alias `demo`; a folder; a `.gguf` file; the name of an imported model; a Hugging Face
repository `org/name`. Nothing is fetched if it is already here.
"""

import difflib
import os
from pathlib import Path

from . import demo_model, hub, model_manifest
from .imported_models import NAME, RESERVED, import_file, named, shelved
from .model_errors import ModelDamaged, ModelError, ModelNotFound, ModelUnsupported
from .model_folder import check_folder
from .progress import Progress, silent

__all__ = ["ModelError", "check_folder", "resolve"]


def resolve(reference: str, *, progress: Progress = silent) -> Path:
    """The absolute path of an mlx-lm model folder that `check_folder` finds good. Blocks; needs no MLX.

    Raises ModelError: one line for the user, and an `exit_code` for the process.
    """
    folder = _located(reference, progress).absolute()
    check_folder(folder)
    return folder


def _located(reference: str, progress: Progress) -> Path:
    if reference == RESERVED:
        return demo_model.pull(progress)
    path = Path(reference).expanduser()
    if reference and os.path.isdir(path):
        return path
    if os.path.isfile(path):  # unlike Path.is_file, False for a name that is too long
        if path.suffix.lower() != ".gguf":
            raise ModelUnsupported(f"{path} is a file; a model is a folder or a .gguf file")
        return import_file(path, None, progress)
    if NAME.fullmatch(reference) and named(reference).is_dir():
        return _imported(reference, progress)
    if hub.looks_like_repository(reference):
        return hub.snapshot(reference, progress)
    raise ModelNotFound(f"there is no model {reference!r}: {_advice(reference)}")


def _imported(name: str, progress: Progress) -> Path:
    """An imported model; one that was damaged is imported again while its source is still where it was."""
    folder = named(name)
    reason = model_manifest.damage(folder)
    if reason is None:
        return folder
    source = (model_manifest.read(folder) or {}).get("source", {}).get("path")
    if source and Path(source).is_file():
        return import_file(Path(source), name, progress)
    raise ModelDamaged(f"the imported model {name!r} is damaged ({reason}); import it again")


def _advice(reference: str) -> str:
    known = [RESERVED, *(folder.name for folder in shelved())]
    near = difflib.get_close_matches(reference, known, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    return "give a folder, a .gguf file, a Hugging Face id (org/name), or one of " + ", ".join(dict.fromkeys(known))
