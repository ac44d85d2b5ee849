"""What `soloist doctor` looks at, one function a question, each answer with its remedy. Imports MLX, late."""

import importlib.metadata
import os
import platform
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..executor.blas import load_blas
from . import hub, model_manifest
from .cache_folder import cache_dir, ensured, models_dir
from .gguf_file import GgufFile
from .gguf_llama import llama_config
from .gguf_tokenizer import tokenizer
from .imported_models import NAME, RESERVED, named
from .model_errors import ModelError, ModelNotFound
from .model_folder import FolderFacts, check_folder

Verdict = Literal["ok", "slow", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """verdict: "slow" works, but not as well as it could. remedy: what to do, empty when nothing is."""

    name: str
    verdict: Verdict
    detail: str
    remedy: str = ""


def findings(model: str, port: int) -> Iterator[Finding]:
    """Every check's answer, in an order in which the earlier ones explain the later ones."""
    checks: tuple[tuple[str, Callable[[], Finding]], ...] = (
        ("python", python),
        ("mlx", packages),
        ("blas", blas),
        ("device", device),
        ("compiler", compiler),
        ("dice", dice),
        ("cache", cache),
        ("port", lambda: port_free(port)),
        ("model", lambda: model_folder(model)),
    )
    for name, check in checks:
        try:
            yield check()
        except Exception as error:  # a doctor who faints helps nobody
            yield Finding(name, "fail", f"{type(error).__name__}: {error}", "report this with the whole output")


def python() -> Finding:
    detail = f"{platform.python_version()} at {sys.executable} ({platform.machine()})"
    if sys.platform == "darwin" and platform.machine() != "arm64":
        return Finding("python", "fail", detail, "use a native arm64 Python: MLX does not run under Rosetta")
    return Finding("python", "ok", detail)


def packages() -> Finding:
    wanted = {"mlx": ((0, 32, 1), (0, 34)), "mlx-lm": ((0, 32, 2), (0, 34))}
    found: dict[str, str] = {}
    for name, (least, below) in wanted.items():
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return Finding("mlx", "fail", f"{name} is not installed", f"pip install {name}")
        numbers = tuple(int(part) for part in found[name].split(".") if part.isdigit())
        if not least <= numbers < below:
            bounds = f">={'.'.join(map(str, least))},<{'.'.join(map(str, below))}"
            return Finding("mlx", "fail", f"{name} {found[name]}", f"pip install '{name}{bounds}'")
    return Finding("mlx", "ok", ", ".join(f"{name} {version}" for name, version in found.items()))


def blas() -> Finding:
    found = load_blas()
    return Finding("blas", "slow" if found.remedy else "ok", found.name, found.remedy or "")


def device() -> Finding:
    import mlx.core as mx

    used = mx.default_device()
    name = mx.device_info().get("device_name", "")
    mx.eval(mx.ones((8, 8)) @ mx.ones((8, 8)))
    detail = f"{used} {name}".strip()
    if sys.platform == "darwin" and used == mx.Device(mx.cpu):
        return Finding("device", "slow", detail, "MLX sees no GPU: macOS 14 or newer on Apple Silicon is needed")
    return Finding("device", "ok", detail)


def compiler() -> Finding:
    """MLX's CPU backend builds fused kernels with g++ when it first meets them; its GPU backends do not."""
    import mlx.core as mx

    if mx.default_device() != mx.Device(mx.cpu):
        return Finding("compiler", "ok", "not needed on this device")
    found = shutil.which("g++")
    if found is None:
        return Finding("compiler", "slow", "no g++ on PATH: fused CPU kernels stay off", "apt-get install g++")
    return Finding("compiler", "ok", found)


def dice() -> Finding:
    """Draw as the daemon does: on a thread of its own, with its own stream and key. Many servers die just here."""
    drawn: list[int] = []
    failed: list[BaseException] = []

    def draw() -> None:
        import mlx.core as mx

        try:
            mx.set_default_stream(mx.new_stream(mx.default_device()))
            drawn.append(int(mx.random.categorical(mx.zeros((1, 64)), key=mx.random.key(7)).item()))
        except BaseException as error:
            failed.append(error)
        finally:
            mx.clear_streams()

    thread = threading.Thread(target=draw)
    thread.start()
    thread.join(30)
    if failed or not drawn or not 0 <= drawn[0] < 64:
        reason = failed[0] if failed else f"drew {drawn}"
        return Finding("dice", "fail", f"sampling on a thread of its own: {reason}", "reinstall mlx")
    return Finding("dice", "ok", "a token was sampled on a thread of its own")


def cache() -> Finding:
    try:
        folder = ensured(cache_dir())
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ModelError) as error:
        return Finding(
            "cache", "fail", f"{cache_dir()}: {error}", "set SOLOIST_CACHE_DIR to a folder that you can write"
        )
    free = shutil.disk_usage(folder).free
    detail = f"{folder}, {free / 1e9:.1f} GB free"
    if free < 1_000_000_000:
        return Finding("cache", "slow", detail, "free some space, or set SOLOIST_CACHE_DIR")
    return Finding("cache", "ok", detail)


def port_free(port: int) -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            reason = f"127.0.0.1:{port}: {error.strerror}"
            return Finding("port", "fail", reason, "stop what listens there (a running soloist?) or use --port")
    return Finding("port", "ok", f"127.0.0.1:{port} is free")


def model_folder(reference: str) -> Finding:
    """Judge the model as `serve` would, but fetch nothing."""
    try:
        facts = _local(reference)
    except ModelError as error:
        return Finding("model", "fail", str(error), "choose another with --model, or fetch it again")
    if facts is None:
        return Finding("model", "ok", f"{reference}: not here yet, fetched on first use")
    if isinstance(facts, str):
        return Finding("model", "ok", facts)
    size = f"{facts.bytes / 1e6:.0f} MB"
    return Finding("model", "ok", f"{facts.path}: {facts.model_type}, {facts.quantization}, {size}")


def _local(reference: str) -> FolderFacts | str | None:
    """Facts of a model that is here; a sentence for a GGUF that could be imported; None for one to be fetched."""
    if reference == RESERVED:
        target = models_dir() / RESERVED
        return check_folder(target) if model_manifest.damage(target) is None else None
    path = Path(reference).expanduser()
    if os.path.isfile(path):
        with GgufFile(path) as file:
            llama_config(file)
            tokenizer(file)
        return f"{path}: a GGUF that can be imported"
    if os.path.isdir(path):
        return check_folder(path)
    if NAME.fullmatch(reference) and named(reference).is_dir():
        return check_folder(named(reference))
    if hub.looks_like_repository(reference):
        folder, _ = hub.cached_snapshot(reference)
        return check_folder(folder) if folder else None
    raise ModelNotFound(f"there is no model {reference!r}")
