"""The user's cache: where it is, one process at a time, and folders that appear whole or not at all."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from .model_errors import CacheNotWritable


def cache_dir() -> Path:
    """`SOLOIST_MODELS_DIR` if set, else the platform's cache folder for us. It need not exist yet."""
    chosen = os.environ.get("SOLOIST_MODELS_DIR")
    return Path(chosen).expanduser().absolute() if chosen else Path(platformdirs.user_cache_dir("soloist"))


def models_dir() -> Path:
    """Imported models: one mlx-lm model folder each, named as the user names them."""
    return cache_dir() / "models"


def ensured(folder: Path) -> Path:
    """Make `folder`. Raises CacheNotWritable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheNotWritable(
            f"cannot write the cache folder {folder}: {error.strerror or error}; set SOLOIST_MODELS_DIR"
        ) from error
    return folder


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock called `name` against other processes. Its holder's death releases it (flock(2))."""
    path = ensured(cache_dir() / "locks") / f"{name}.lock"
    try:
        handle = path.open("w")
    except OSError as error:
        raise CacheNotWritable(f"cannot write {path}: {error.strerror}; set SOLOIST_MODELS_DIR") from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside `target` that takes its place when the block ends well, and vanishes when it fails.

    What stood at `target` before is replaced. The caller holds a lock, so leftovers of a killed run are swept here.
    """
    parent = ensured(target.parent)
    for leftover in parent.glob(f".{target.name}.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=parent))
    except OSError as error:
        raise CacheNotWritable(f"cannot write {parent}: {error.strerror}; set SOLOIST_MODELS_DIR") from error
    try:
        yield fresh
        fresh.chmod(0o755)
        if target.exists():
            os.replace(target, fresh.with_name(fresh.name + ".old"))
        os.replace(fresh, target)
    except OSError as error:
        raise CacheNotWritable(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(fresh.with_name(fresh.name + ".old"), ignore_errors=True)
