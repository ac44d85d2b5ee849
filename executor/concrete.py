"""Makes arrays concrete wherever they hide: in parameters, and in what a model keeps beside them (RoPE tables).

Runs on the executor thread only.
"""

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import mlx.nn as nn


def arrays_of(root: Any) -> Iterator[mx.array]:
    """Every array reachable from a module, cache or container, parameters or not."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        item = todo.pop()
        if isinstance(item, mx.array):
            yield item
            continue
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, dict):
            todo.extend(item.values())
        elif isinstance(item, list | tuple | set):
            todo.extend(item)
        if isinstance(item, nn.Module) or _belongs_to_mlx(item):
            todo.extend(vars(item).values() if hasattr(item, "__dict__") else ())


def _belongs_to_mlx(item: Any) -> bool:
    return type(item).__module__.startswith(("mlx.", "mlx_lm."))


def make_concrete(root: Any) -> None:
    """Evaluate every array under `root`, so that no later thread finds a graph that names this one's stream."""
    mx.eval(list(arrays_of(root)))
