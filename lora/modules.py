"""A loaded model's modules: what they are, where they hang, and how to swap one. Runs on the executor thread only."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from .shapes import ModuleKind, ModuleShape

LINEAR = (nn.Linear, nn.QuantizedLinear)
EMBEDDING = (nn.Embedding, nn.QuantizedEmbedding)
EXPERTS = (SwitchLinear, QuantizedSwitchLinear)
QUANTISED = (nn.QuantizedLinear, nn.QuantizedEmbedding, QuantizedSwitchLinear)


@dataclass(slots=True)
class Place:
    """A module and the container (module or list) that holds it under `key`."""

    module: nn.Module
    holder: Any
    key: Any
    parent: str

    def put(self, module: nn.Module) -> None:
        self.holder[self.key] = module


def places(model: nn.Module) -> dict[str, Place]:
    """Every module below `model` by its dotted name."""
    return dict(_walk(model, ""))


def _walk(module: nn.Module, prefix: str) -> Iterator[tuple[str, Place]]:
    for key, value in list(module.items()):
        yield from _visit(value, module, key, prefix + key, prefix)


def _visit(value: Any, holder: Any, key: Any, name: str, parent: str) -> Iterator[tuple[str, Place]]:
    if isinstance(value, nn.Module):
        yield name, Place(value, holder, key, parent.rstrip("."))
        yield from _walk(value, name + ".")
    elif isinstance(value, list | tuple | dict):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for inner, child in list(pairs):
            yield from _visit(child, value, inner, f"{name}.{inner}", parent)


def kind_of_module(module: nn.Module) -> ModuleKind:
    """linear, embedding or experts; anything else takes only whole parameters."""
    if isinstance(module, LINEAR):
        return "linear"
    if isinstance(module, EMBEDDING):
        return "embedding"
    return "experts" if isinstance(module, EXPERTS) else "other"


def shape_of(module: nn.Module) -> ModuleShape:
    """The module as an adapter sees it; only its own parameters, not those of its children."""
    parameters = {key: tuple(value.shape) for key, value in module.items() if isinstance(value, mx.array)}
    dense = parameters.get("weight", ())
    if isinstance(module, QUANTISED):
        dense = (*dense[:-1], parameters["scales"][-1] * module.group_size)
    return ModuleShape(kind_of_module(module), dense, parameters, type(module).__name__)


def is_leaf(module: nn.Module) -> bool:
    """Whether it holds parameters only: then it can be copied with some of them replaced."""
    return not tree_flatten(module.children())


def dense_weight(module: nn.Module) -> mx.array:
    """The weight that the module computes with, float32: (outputs, inputs), (ids, dims) or (experts, out, in)."""
    weight = module["weight"]
    if not isinstance(module, QUANTISED):
        return weight.astype(mx.float32)
    scales, biases = module["scales"], module.get("biases")
    if module.mode == "affine":
        scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)
    return mx.dequantize(
        weight,
        scales,
        biases,
        group_size=module.group_size,
        bits=module.bits,
        mode=module.mode,
        global_scale=module.get("global_scale"),
        dtype=mx.float32,
    )


def float_type(module: nn.Module) -> mx.Dtype:
    """The float type that a dense weight of this module would have: that of its scales if it is quantised."""
    dtype = module["scales"].dtype if isinstance(module, QUANTISED) else module["weight"].dtype
    return dtype if mx.issubdtype(dtype, mx.floating) else mx.bfloat16
