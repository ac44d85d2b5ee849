"""Which BLAS serves MLX's CPU backend. The library must be in the process before mlx is imported.

The mlx-cpu wheel carries the reference BLAS (1.3 GFLOP/s); its symbols give way to those of an optimised library
that is loaded first with RTLD_GLOBAL. Apple's builds use Accelerate and need nothing. No MLX here.
"""

import ctypes
import os
import sys
from dataclasses import dataclass

CANDIDATES = ("libopenblas.so.0", "libblis.so.4", "libmkl_rt.so.2")
REMEDY = "install an optimised BLAS: apt-get install libopenblas0-pthread"


@dataclass(frozen=True, slots=True)
class Blas:
    """name: what serves matrix products. remedy: one line for the operator where it is a slow one."""

    name: str
    remedy: str | None = None


def load_blas() -> Blas:
    """Load the best BLAS there is. To be called before the first import of mlx; harmless afterwards."""
    if sys.platform == "darwin":
        return Blas("Accelerate")
    # One thread is steadiest beside the event loop, and MLX runs one product at a time anyway.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    late = "mlx.core" in sys.modules
    for candidate in CANDIDATES:
        try:
            library = ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        if late and not _preloaded:
            return Blas("reference (mlx-cpu)", f"{candidate} was loaded after mlx and has no effect")
        _preloaded.append(candidate)
        return Blas(_describe(candidate, library))
    return Blas("reference (mlx-cpu, slow)", REMEDY)


_preloaded: list[str] = []


def _describe(candidate: str, library: ctypes.CDLL) -> str:
    try:
        config = library.openblas_get_config
    except AttributeError:
        return candidate
    config.restype = ctypes.c_char_p
    return " ".join(config().decode().split()[:2]) + f", {library.openblas_get_num_threads()} thread(s)"
