"""The unquantised twin of a quantised module. Runs on the executor thread only."""

from collections.abc import Mapping

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.switch_layers import SwitchLinear

from .modules import kind_of_module


def dense_twin(module: nn.Module, weight: mx.array, parameters: Mapping[str, mx.array] | None = None) -> nn.Module:
    """A plain layer of the same kind with this weight; its bias is that of `parameters`, else the module's."""
    kind = kind_of_module(module)
    cls = {"linear": nn.Linear, "embedding": nn.Embedding, "experts": SwitchLinear}[kind]
    twin: nn.Module = cls.__new__(cls)
    nn.Module.__init__(twin)  # not the layer's own __init__, which would draw from the global dice
    twin.weight = weight
    bias = (parameters or {}).get("bias", module.get("bias"))
    if bias is not None:
        twin.bias = bias
    twin.eval()
    return twin
