"""Adapters that the suite writes itself, and the weights they stand for, computed in NumPy from the same numbers.

Every writer starts from Factors, (inputs, rank) and (rank, outputs) matrices by module, so that what is expected
never depends on a loader. Names are those of mlx-lm's modules.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

Weights = dict[str, Any]
QUERY, VALUE, DOWN = "self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"


@dataclass(frozen=True)
class Factors:
    """modules: name -> (a, b), float32; a stack of experts has a leading axis on both."""

    modules: dict[str, tuple[Any, Any]]

    @property
    def rank(self) -> int:
        return int(next(iter(self.modules.values()))[0].shape[-1])

    @property
    def targets(self) -> list[str]:
        return sorted({name.split(".", 3)[3] if ".layers." in name else name for name in self.modules})


def weights_of(folder: Path) -> Weights:
    return dict(load_file(folder / "model.safetensors"))


def draw(
    weights: Weights, modules: Sequence[str], rank: int = 4, seed: int = 1, ranks: Mapping[str, int] | None = None
) -> Factors:
    """Random factors that fit the named modules; an embedding's inputs are its ids."""
    random = np.random.default_rng(seed)
    drawn = {}
    for name in modules:
        r = (ranks or {}).get(name, rank)
        *experts, outputs, inputs = weights[f"{name}.weight"].shape
        if name.endswith("embed_tokens"):
            outputs, inputs = inputs, outputs
        shapes = (*experts, inputs, r), (*experts, r, outputs)
        drawn[name] = tuple((random.normal(size=shape) * 0.2).astype(np.float32) for shape in shapes)
    return Factors(drawn)


def layered(*targets: str, layers: Sequence[int] = range(4)) -> list[str]:
    return [f"model.layers.{layer}.{target}" for layer in layers for target in targets]


def delta(name: str, a: Any, b: Any) -> Any:
    """B A as the weight lies: (outputs, inputs), (ids, dims) or (experts, outputs, inputs)."""
    product = a.astype(np.float32) @ b.astype(np.float32)
    return product if name.endswith("embed_tokens") else np.swapaxes(product, -1, -2)


def merged(weights: Weights, factors: Factors, factor: float | Mapping[str, float]) -> Weights:
    """W + factor * B A in float32."""
    result = dict(weights)
    for name, (a, b) in factors.modules.items():
        own = factor[name] if isinstance(factor, Mapping) else factor
        result[f"{name}.weight"] = result[f"{name}.weight"] + np.float32(own) * delta(name, a, b)
    return result


def rescaled(weights: Weights, magnitudes: Mapping[str, Any]) -> Weights:
    """DoRA: every row gets its learned length."""
    result = dict(weights)
    for name, magnitude in magnitudes.items():
        weight = result[f"{name}.weight"]
        result[f"{name}.weight"] = weight * (magnitude / np.linalg.norm(weight, axis=1))[:, None]
    return result


def draw_magnitudes(weights: Weights, factors: Factors, seed: int = 5) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    lengths = {name: np.linalg.norm(weights[f"{name}.weight"], axis=1) for name in factors.modules}
    return {name: (value * random.uniform(0.7, 1.4, value.shape)).astype(np.float32) for name, value in lengths.items()}


def write(folder: Path, config: Mapping[str, Any], name: str, tensors: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file({key: np.ascontiguousarray(value) for key, value in tensors.items()}, folder / name)
    return folder


def mlx_config(factors: Factors, scale: float = 2.0, **changes: Any) -> dict[str, Any]:
    parameters = {"rank": factors.rank, "dropout": 0.0, "scale": scale, "keys": factors.targets}
    return {"fine_tune_type": "lora", "num_layers": 4, "lora_parameters": parameters, **changes}


def mlx_tensors(factors: Factors, magnitudes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    tensors = {}
    for name, (a, b) in factors.modules.items():
        turn = a.ndim == 3
        tensors[f"{name}.lora_a"] = np.swapaxes(a, -1, -2) if turn else a
        tensors[f"{name}.lora_b"] = np.swapaxes(b, -1, -2) if turn else b
    return tensors | {f"{name}.m": value for name, value in (magnitudes or {}).items()}


def write_mlx(
    folder: Path,
    factors: Factors,
    scale: float = 2.0,
    *,
    tensors: Mapping[str, Any] | None = None,
    magnitudes: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """mlx-lm's layout; `tensors` and `changes` override what the factors imply."""
    style = {"fine_tune_type": "dora"} if magnitudes else {}
    config = mlx_config(factors, scale, **(style | changes))
    own = mlx_tensors(factors, magnitudes) if tensors is None else tensors
    return write(folder, config, "adapters.safetensors", own)


def peft_tensors(factors: Factors, adapter_name: str = "") -> dict[str, Any]:
    """PEFT's layout: (rank, inputs) and (outputs, rank), embeddings and experts under its names."""
    middle, tensors = f".{adapter_name}" if adapter_name else "", {}
    for name, (a, b) in factors.modules.items():
        prefix = f"base_model.model.{name}"
        if name.endswith("embed_tokens"):
            tensors[f"{prefix}.lora_embedding_A{middle}"] = a.T
            tensors[f"{prefix}.lora_embedding_B{middle}"] = b.T
        elif a.ndim == 3:
            block, _, projection = prefix.rpartition(".switch_mlp.")
            theirs = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}[projection]
            for expert in range(a.shape[0]):
                tensors[f"{block}.experts.{expert}.{theirs}.lora_A{middle}.weight"] = a[expert].T
                tensors[f"{block}.experts.{expert}.{theirs}.lora_B{middle}.weight"] = b[expert].T
        else:
            tensors[f"{prefix}.lora_A{middle}.weight"] = a.T
            tensors[f"{prefix}.lora_B{middle}.weight"] = b.T
    return tensors


def peft_config(factors: Factors, alpha: float, **changes: Any) -> dict[str, Any]:
    names = sorted({name.rsplit(".", 1)[-1] for name in factors.modules if "switch_mlp" not in name})
    return {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": factors.rank, "lora_alpha": alpha, "lora_dropout": 0.0,
        "bias": "none", "fan_in_fan_out": False, "target_modules": names, "modules_to_save": None,
        "use_rslora": False, "use_dora": False, "rank_pattern": {}, "alpha_pattern": {}, "init_lora_weights": True,
        **changes,
    }  # fmt: skip


def write_peft(
    folder: Path, factors: Factors, alpha: float = 8.0, *, tensors: Mapping[str, Any] | None = None, **changes: Any
) -> Path:
    own = peft_tensors(factors) if tensors is None else tensors
    return write(folder, peft_config(factors, alpha, **changes), "adapter_model.safetensors", own)
