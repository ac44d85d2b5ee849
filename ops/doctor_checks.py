"""What the doctor says of the machine and the installation, one function a question. Imports MLX, late."""

import importlib.metadata
import os
import platform
import shutil
import sys
from pathlib import Path

from .. import __version__
from ..executor.blas import load_blas
from .doctor_finding import Finding
from .doctor_ghosts import in_thread

MLX = {"mlx": ((0, 32, 1), (0, 34)), "mlx-lm": ((0, 32, 2), (0, 34))}
OTHERS = ("aiohttp", "tokenizers", "llguidance", "numpy")


def python() -> Finding:
    detail = f"{platform.python_version()} at {sys.executable} ({platform.machine()})"
    if sys.platform == "darwin" and platform.machine() != "arm64":
        return Finding("python", "fail", detail, "use a native arm64 Python: MLX does not run under Rosetta")
    return Finding("python", "ok", detail)


def packages() -> Finding:
    found: dict[str, str] = {"soloist": __version__}
    for name in (*MLX, *OTHERS):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return Finding("packages", "fail", f"{name} is not installed", f"pip install {name}")
    for name, (least, below) in MLX.items():
        numbers = tuple(int(part) for part in found[name].split(".") if part.isdigit())
        if not least <= numbers < below:
            bounds = f">={'.'.join(map(str, least))},<{'.'.join(map(str, below))}"
            return Finding("packages", "fail", f"{name} {found[name]}", f"pip install '{name}{bounds}'")
    return Finding("packages", "ok", ", ".join(f"{name} {version}" for name, version in found.items()))


def blas() -> Finding:
    found = load_blas()
    return Finding("blas", "slow" if found.remedy else "ok", found.name, found.remedy or "")


def device() -> Finding:
    import mlx.core as mx

    def compute() -> None:
        mx.set_default_stream(mx.new_stream(mx.default_device()))
        mx.eval(mx.ones((8, 8)) @ mx.ones((8, 8)))

    used = mx.default_device()
    in_thread(compute)
    detail = f"{used} {mx.device_info().get('device_name', '')}".strip()
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


def memory(weights: int | None) -> Finding:
    """What the device lets us use, against the weights (bytes; None: not known). On Metal that part is wired."""
    import mlx.core as mx

    from ..executor.device import total_memory

    usable, machine = total_memory(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    detail = f"{machine / 1e9:.1f} GB"
    remedy = "choose a smaller or a quantised model"
    if mx.metal.is_available():
        detail += f", of which {usable / 1e9:.1f} GB for the GPU, wired while serving"
        remedy += f", or raise the limit: sudo sysctl iogpu.wired_limit_mb={int(machine * 0.85) >> 20}"
    elif (limit := _container_limit()) is not None and limit < usable:
        usable = limit
        detail += f", of which this container may use {usable / 1e9:.1f} GB"
        remedy += ", or raise the container's limit"
    if weights is None:
        return Finding("memory", "ok", detail)
    detail += f"; the model's weights take {weights / 1e9:.2f} GB"
    if weights > usable:
        return Finding("memory", "fail", detail, remedy)
    if weights > 0.75 * usable:
        return Finding("memory", "slow", f"{detail}, which leaves little for long prompts", remedy)
    return Finding("memory", "ok", detail)


def _container_limit() -> int | None:
    """Bytes that control groups allow this process (version 2, then 1), or None."""
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(file).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None
    return None
