"""What a model's modules look like to an adapter, read from the headers of a model folder. Plain Python, no MLX.

modules.py draws the same picture from a loaded model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .files import Tensor, read_header, read_json, read_metadata

ModuleKind = Literal["linear", "embedding", "experts", "matrix", "other"]
EMBEDDINGS = ("embed_tokens", "embedding", "embeddings", "wte", "tok_embeddings", "word_embeddings")


@dataclass(frozen=True, slots=True)
class ModuleShape:
    """kind "matrix": linear or embedding, the headers cannot tell. parameters: name -> shape as stored (packed if
    quantised). dense: the shape of the weight itself, () if there is none."""

    kind: ModuleKind
    dense: tuple[int, ...]
    parameters: Mapping[str, tuple[int, ...]]
    type_name: str = ""

    @property
    def quantised(self) -> bool:
        return "scales" in self.parameters


Shapes = Mapping[str, ModuleShape]


def folder_shapes(folder: Path) -> Shapes | None:
    """Modules of an mlx-lm model folder; None where file names and module names may differ (not saved by MLX)."""
    tensors: dict[str, Tensor] = {}
    paths = sorted(folder.glob("model*.safetensors"))
    if not paths or any(read_metadata(path).get("format") != "mlx" for path in paths):
        return None
    for path in paths:
        tensors |= read_header(path)
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    quantisation = config.get("quantization") or config.get("quantization_config") or {}
    modules: dict[str, dict[str, tuple[int, ...]]] = {}
    for key, tensor in tensors.items():
        module, _, parameter = key.rpartition(".")
        modules.setdefault(module, {})[parameter] = tensor.shape
    return {name: _shape(name, parameters, quantisation) for name, parameters in modules.items()}


def _shape(name: str, parameters: Mapping[str, tuple[int, ...]], quantisation: Mapping[str, Any]) -> ModuleShape:
    dense = parameters.get("weight", ())
    if dense and "scales" in parameters:
        own = quantisation.get(name)
        group = (own if isinstance(own, Mapping) else quantisation).get("group_size", 64)
        dense = (*dense[:-1], parameters["scales"][-1] * int(group))
    if len(dense) == 3:
        kind: ModuleKind = "experts"
    elif len(dense) == 2:
        kind = "embedding" if name.rsplit(".", 1)[-1] in EMBEDDINGS else "matrix"
    else:
        kind = "other"
    return ModuleShape(kind, dense, parameters)
