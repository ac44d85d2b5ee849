"""Every format and factor rule as one case: how it is written, and the weights that it stands for."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from adapter_files import (
    DOWN,
    QUERY,
    VALUE,
    Factors,
    Weights,
    draw,
    draw_magnitudes,
    layered,
    merged,
    mlx_tensors,
    peft_tensors,
    rescaled,
    write,
    write_mlx,
    write_peft,
)

Build = Callable[[Path, Weights], Weights]
EXPERTS = ("block_sparse_moe.switch_mlp.gate_proj", "block_sparse_moe.switch_mlp.down_proj")


@dataclass(frozen=True)
class Case:
    """build(folder, base weights) writes the adapter and returns the weights that it stands for."""

    name: str
    base: str
    build: Build


def three(weights: Weights, **options: Any) -> Factors:
    return draw(weights, layered(QUERY, VALUE, DOWN, layers=range(_layers(weights))), **options)


def _layers(weights: Weights) -> int:
    return 1 + max(int(name.split(".")[2]) for name in weights if ".layers." in name)


def mlx_lora(folder: Path, weights: Weights) -> Weights:
    factors = three(weights)
    write_mlx(folder, factors, 2.0)
    return merged(weights, factors, 2.0)


def historic(folder: Path, weights: Weights) -> Weights:
    """alpha 32, rank 16, scale 2.0: two, not four."""
    factors = three(weights, rank=16)
    parameters = {"alpha": 32, "rank": 16, "scale": 2.0, "dropout": 0.0}
    write_mlx(folder, factors, lora_parameters=parameters)
    return merged(weights, factors, 2.0)


def mlx_dora(folder: Path, weights: Weights) -> Weights:
    factors = three(weights)
    magnitudes = draw_magnitudes(weights, factors)
    write_mlx(folder, factors, 1.5, magnitudes=magnitudes)
    return rescaled(merged(weights, factors, 1.5), magnitudes)


def mlx_full(folder: Path, weights: Weights) -> Weights:
    random = np.random.default_rng(9)
    last = f"model.layers.{_layers(weights) - 1}."
    own = {
        name: (value + random.normal(size=value.shape) * 0.1).astype(np.float32)
        for name, value in weights.items()
        if name.startswith(last)
    }
    write(folder, {"fine_tune_type": "full", "num_layers": 1, "lora_parameters": None}, "adapters.safetensors", own)
    return weights | own


def embeddings(folder: Path, weights: Weights) -> Weights:
    names = [name for name in ("model.embed_tokens", "lm_head") if f"{name}.weight" in weights]
    factors = draw(weights, names)
    write_mlx(folder, factors, 2.0)
    return merged(weights, factors, 2.0)


def dora_embedding(folder: Path, weights: Weights) -> Weights:
    factors = draw(weights, ["model.embed_tokens"])
    magnitudes = draw_magnitudes(weights, factors)
    write_mlx(folder, factors, 2.0, magnitudes=magnitudes)
    return rescaled(merged(weights, factors, 2.0), magnitudes)


def peft_lora(folder: Path, weights: Weights) -> Weights:
    factors = three(weights)
    write_peft(folder, factors, 8)
    return merged(weights, factors, 2.0)


def peft_rslora(folder: Path, weights: Weights) -> Weights:
    factors = three(weights)
    write_peft(folder, factors, 3, use_rslora=True)
    return merged(weights, factors, 1.5)


def peft_patterns(folder: Path, weights: Weights) -> Weights:
    special = f"model.layers.0.{QUERY}"
    factors = three(weights, ranks={special: 2})
    write_peft(folder, factors, 8, r=4, rank_pattern={"layers.0.self_attn.q_proj": 2}, alpha_pattern={"v_proj": 12})
    own = {name: 4.0 if name == special else 3.0 if name.endswith("v_proj") else 2.0 for name in factors.modules}
    return merged(weights, factors, own)


def peft_dora(folder: Path, weights: Weights) -> Weights:
    factors = three(weights)
    magnitudes = draw_magnitudes(weights, factors)
    names = {f"base_model.model.{name}.lora_magnitude_vector": value for name, value in magnitudes.items()}
    write_peft(folder, factors, 6, tensors=peft_tensors(factors) | names, use_dora=True)
    return rescaled(merged(weights, factors, 1.5), magnitudes)


def peft_named(folder: Path, weights: Weights) -> Weights:
    factors = three(weights)
    write_peft(folder, factors, 8, tensors=peft_tensors(factors, "default"), target_modules="all-linear")
    return merged(weights, factors, 2.0)


def peft_bfloat16(folder: Path, weights: Weights) -> Weights:
    factors = three(weights)
    write_peft(folder, factors, 8)
    half = {
        key: mx.array(np.ascontiguousarray(value)).astype(mx.bfloat16) for key, value in peft_tensors(factors).items()
    }
    mx.save_safetensors(str(folder / "adapter_model.safetensors"), half)
    rounded = {
        name: tuple(np.array(mx.array(half_).astype(mx.bfloat16).astype(mx.float32)) for half_ in pair)
        for name, pair in factors.modules.items()
    }
    return merged(weights, Factors(rounded), 2.0)  # type: ignore[arg-type]


def peft_saved_modules(folder: Path, weights: Weights) -> Weights:
    random = np.random.default_rng(3)
    factors = three(weights)
    head = (weights["lm_head.weight"] + random.normal(size=weights["lm_head.weight"].shape) * 0.1).astype(np.float32)
    tensors = peft_tensors(factors) | {"base_model.model.lm_head.modules_to_save.weight": head}
    write_peft(folder, factors, 8, tensors=tensors, modules_to_save=["lm_head"])
    return merged(weights, factors, 2.0) | {"lm_head.weight": head}


def peft_embedding(folder: Path, weights: Weights) -> Weights:
    """PEFT saves a targeted embedding's own weight beside its pair."""
    factors = draw(weights, ["model.embed_tokens", *layered(VALUE, layers=range(_layers(weights)))])
    fresh = (weights["model.embed_tokens.weight"] * 1.1).astype(np.float32)
    tensors = peft_tensors(factors) | {"base_model.model.model.embed_tokens.base_layer.weight": fresh}
    write_peft(folder, factors, 8, tensors=tensors)
    return merged(weights | {"model.embed_tokens.weight": fresh}, factors, 2.0)


def peft_biases(folder: Path, weights: Weights) -> Weights:
    random = np.random.default_rng(4)
    factors = three(weights)
    own = {
        f"{name}.bias": (weights[f"{name}.bias"] + random.normal(size=weights[f"{name}.bias"].shape)).astype(np.float32)
        for name in factors.modules
    }
    tensors = peft_tensors(factors)
    for number, (name, value) in enumerate(own.items()):
        stem = name.removesuffix(".bias")
        tensors[f"base_model.model.{stem}.base_layer.bias" if number % 2 else f"base_model.model.{name}"] = value
    write_peft(folder, factors, 8, tensors=tensors, bias="lora_only")
    return merged(weights, factors, 2.0) | own


def peft_bias_of_b(folder: Path, weights: Weights) -> Weights:
    factors = three(weights)
    own = {name: np.linspace(-1, 1, b.shape[-1], dtype=np.float32) for name, (_, b) in factors.modules.items()}
    tensors = peft_tensors(factors) | {f"base_model.model.{name}.lora_B.bias": value for name, value in own.items()}
    write_peft(folder, factors, 8, tensors=tensors, lora_bias=True)
    biases = {f"{name}.bias": weights[f"{name}.bias"] + 2.0 * value for name, value in own.items()}
    return merged(weights, factors, 2.0) | biases


def mlx_experts(folder: Path, weights: Weights) -> Weights:
    factors = draw(weights, layered(QUERY, *EXPERTS, layers=range(2)))
    write_mlx(folder, factors, 2.0, tensors=mlx_tensors(factors), num_layers=2)
    return merged(weights, factors, 2.0)


def peft_experts(folder: Path, weights: Weights) -> Weights:
    factors = draw(weights, layered(QUERY, *EXPERTS, layers=range(2)))
    write_peft(folder, factors, 8, target_modules=["q_proj", "w1", "w2"])
    return merged(weights, factors, 2.0)


CASES = [
    Case("mlx_lora", "llama", mlx_lora),
    Case("mlx_lora_with_alpha_beside_scale", "llama", historic),
    Case("mlx_dora", "llama", mlx_dora),
    Case("mlx_dora_beside_biases", "biased", mlx_dora),
    Case("mlx_full", "llama", mlx_full),
    Case("mlx_embedding_and_head", "llama", embeddings),
    Case("mlx_tied_embedding", "tied", embeddings),
    Case("mlx_dora_tied_embedding", "tied", dora_embedding),
    Case("mlx_experts", "mixture", mlx_experts),
    Case("mlx_full_mixture", "mixture", mlx_full),
    Case("peft_lora", "llama", peft_lora),
    Case("peft_rslora", "llama", peft_rslora),
    Case("peft_patterns", "llama", peft_patterns),
    Case("peft_dora", "llama", peft_dora),
    Case("peft_adapter_name_and_all_linear", "llama", peft_named),
    Case("peft_bfloat16", "llama", peft_bfloat16),
    Case("peft_modules_to_save", "llama", peft_saved_modules),
    Case("peft_embedding_with_saved_base", "llama", peft_embedding),
    Case("peft_tied_embedding", "tied", peft_embedding),
    Case("peft_biases", "biased", peft_biases),
    Case("peft_bias_of_lora_b", "biased", peft_bias_of_b),
    Case("peft_experts", "mixture", peft_experts),
]
