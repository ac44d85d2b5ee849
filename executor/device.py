"""The device that MLX computes on, seen from the executor thread: its name, memory, type of activations, compiler.

Runs on the executor thread only.
"""

import os
import shutil

import mlx.core as mx


def on_cpu() -> bool:
    return mx.default_device() == mx.Device(mx.cpu)


def describe() -> str:
    """Name and kind of the default device."""
    name = mx.device_info().get("device_name", "unknown")
    return f"{mx.default_device()} ({name})"


def total_memory() -> int:
    """Bytes that weights and caches may use: the GPU's working set on Metal, the machine's memory elsewhere."""
    if mx.metal.is_available():
        return int(mx.device_info()["max_recommended_working_set_size"])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def prepare() -> str | None:
    """Settings of the process that belong to the device. Returns a remark for the start-up log, or None.

    On Metal the working set is wired, so that weights are not paged out between requests.
    """
    if mx.metal.is_available():
        mx.set_wired_limit(total_memory())
        return None
    if on_cpu() and shutil.which("g++") is None:
        # MLX's CPU backend builds fused kernels with g++ the first time that it meets them.
        mx.disable_compile()
        return "no g++ on PATH: fused CPU kernels are off (apt-get install g++)"
    return None
