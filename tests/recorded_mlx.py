"""Wraps MLX's entry points as it is imported, whoever imports it, and notes which thread calls each.

Functions of mlx.core and its submodules, methods and operators of arrays, compiled functions. To be installed before
anything imports MLX. Not covered: the release of an array, which no Python code sees.
"""

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
import types
from collections import defaultdict
from typing import Any

SUBMODULES = ("random", "fast", "fft", "linalg", "metal", "cuda", "distributed")
OPERATORS = (
    "add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv floordiv rfloordiv mod rmod pow rpow matmul "
    "neg abs invert and or xor lshift rshift lt le gt ge eq ne getitem setitem len iter float int bool array dlpack"
)
seen: dict[int, set[str]] = defaultdict(set)
"""Native thread id to the names of the entry points that it has called."""


def recorded(function: Any, name: str) -> Any:
    @functools.wraps(function, updated=())
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        seen[threading.get_native_id()].add(name)
        result = function(*args, **kwargs)
        return recorded(result, "compiled") if name == "compile" and callable(result) else result

    return wrapper


def wrap_module(module: Any) -> None:
    seen[threading.get_native_id()].add("import")
    for part, prefix in [(module, ""), *((getattr(module, name, None), f"{name}.") for name in SUBMODULES)]:
        for name, value in list(vars(part).items()) if part is not None else []:
            if callable(value) and not isinstance(value, type | types.ModuleType) and not name.startswith("__"):
                setattr(part, name, recorded(value, prefix + name))
    operators = {f"__{name}__" for name in OPERATORS.split()}
    for name, value in list(vars(module.array).items()):
        if isinstance(value, property):
            continue
        if callable(value) and (not name.startswith("__") or name in operators):
            setattr(module.array, name, recorded(value, f"array.{name}"))


class Finder(importlib.abc.MetaPathFinder):
    """Finds mlx.core where it is, and wraps it once it has been executed."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != "mlx.core":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        real = spec.loader.exec_module

        def execute(module: types.ModuleType) -> None:
            real(module)
            wrap_module(module)

        spec.loader.exec_module = execute  # type: ignore[method-assign]
        return spec


def install() -> None:
    assert "mlx.core" not in sys.modules
    sys.meta_path.insert(0, Finder())
