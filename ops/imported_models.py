"""The shelf of imported models: put one there whole, find it again, take it away."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from . import model_manifest
from .cache_folder import appearing, locked, models_dir
from .gguf_import import import_gguf
from .model_errors import ModelNotFound, ModelUnsupported
from .progress import Progress, silent

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
RESERVED = "demo"


def named(name: str) -> Path:
    """Where the model `name` lies, there or not. Raises ModelUnsupported for a name that could not be a folder's."""
    if not NAME.fullmatch(name):
        raise ModelUnsupported(f"{name!r} cannot name a model: letters, digits, '.', '_' and '-' can")
    return models_dir() / name


def shelved() -> list[Path]:
    """All imported models' folders, by name, damaged ones too."""
    folders = models_dir().iterdir() if models_dir().is_dir() else ()
    return sorted(folder for folder in folders if folder.is_dir() and NAME.fullmatch(folder.name))


def place(name: str, gguf: Path, source: Mapping[str, str], progress: Progress = silent) -> Path:
    """Import `gguf` as `name`, replacing what was there. The caller holds the lock of `name`."""
    target = named(name)
    with appearing(target) as folder:
        known = import_gguf(gguf, folder, progress)
        model_manifest.seal(folder, source, known)
    return target


def import_file(gguf: Path, name: str | None = None, progress: Progress = silent) -> Path:
    """Import a GGUF file once: what is there already, intact and of the same content, is returned as it is.

    name: default is the file's own. Raises ModelNotFound, ModelDamaged, ModelUnsupported (also: the name is taken).
    """
    if not gguf.is_file():
        raise ModelNotFound(f"there is no file {gguf}")
    if name == RESERVED:
        raise ModelUnsupported(f"{RESERVED!r} is the demo model's own name; choose another with --name")
    source = _source(gguf, progress)
    chosen = name or _free_name(gguf, source["sha256"])
    target = named(chosen)
    with locked(f"model-{chosen}"):
        held = model_manifest.read(target)
        if held and held["source"].get("sha256") != source["sha256"]:
            raise ModelUnsupported(f"the name {chosen!r} belongs to another model; choose one with --name")
        if model_manifest.damage(target) is None:
            return target
        return place(chosen, gguf, source, progress)


def remove(name: str) -> int:
    """Delete the model `name`; return the bytes that this frees. Raises ModelNotFound."""
    target = named(name)
    if not target.is_dir():
        raise ModelNotFound(f"no imported model is called {name!r}; `soloist models list` shows those there are")
    with locked(f"model-{name}"):
        freed = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        shutil.rmtree(target)
    return freed


def _free_name(gguf: Path, sha256: str) -> str:
    """The name that this content already has, else the file's, told apart by the hash where another model has it."""
    for folder in shelved():
        held = model_manifest.read(folder)
        if held and held["source"].get("sha256") == sha256:
            return folder.name
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", gguf.stem).strip(".-_")[:80] or "model"
    taken = plain == RESERVED or (models_dir() / plain).exists()
    return f"{plain}-{sha256[:8]}" if taken else plain


def _source(gguf: Path, progress: Progress) -> dict[str, str]:
    """What identifies the file: its SHA-256, not computed again for one that has not changed where it lies."""
    status = gguf.stat()
    place = {"path": str(gguf.resolve()), "size": str(status.st_size), "changed_ns": str(status.st_mtime_ns)}
    for folder in shelved():
        held = model_manifest.read(folder)
        if held and held["source"].items() >= place.items():
            return {**place, "sha256": held["source"]["sha256"]}
    progress("Reading the file", 0, None)
    return {**place, "sha256": model_manifest.file_sha256(gguf)}
