"""Writes a GGUF model as an mlx-lm model folder, quantised blocks kept packed and bit for bit what they were."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .gguf_blocks import BITS, GROUP, Array, pack, unpack_floats
from .gguf_file import GgufFile, GgufTensor
from .gguf_llama import FREQUENCIES, llama_config, quantization, row_order, target_name
from .gguf_tokenizer import end_ids, tokenizer, tokenizer_config
from .model_errors import ModelDamaged
from .progress import Progress, silent
from .safetensors_file import Writer

Plan = dict[str, tuple[str, tuple[int, ...]]]


def import_gguf(path: Path, folder: Path, progress: Progress = silent) -> dict[str, str]:
    """Fill the existing `folder` with the model in `path`; return the SHA-256 of its large file, by name.

    Raises ModelNotFound, ModelDamaged, ModelUnsupported; `folder` is then worthless.
    """
    with GgufFile(path) as file:
        config = llama_config(file)
        if packed := quantization(file):
            config["quantization"] = packed
        rebuilt, ends = tokenizer(file), end_ids(file)
        config["bos_token_id"] = file.metadata.get("tokenizer.ggml.bos_token_id")
        config["eos_token_id"] = ends[0] if len(ends) == 1 else ends
        _write_json(folder / "tokenizer_config.json", tokenizer_config(file, config))
        rebuilt.save(str(folder / "tokenizer.json"))
        _write_json(folder / "generation_config.json", {"eos_token_id": ends})
        _write_json(folder / "config.json", config)
        return {"model.safetensors": _write_weights(file, folder / "model.safetensors", config, progress)}


def _write_weights(file: GgufFile, path: Path, config: dict[str, Any], progress: Progress) -> str:
    tensors = [tensor for tensor in file.tensors.values() if tensor.name != FREQUENCIES]
    total = sum(tensor.bytes for tensor in tensors)
    plan: Plan = {}
    for tensor in tensors:
        plan |= _planned(target_name(file, tensor.name), tensor)
    missing = _missing_biases(plan, config)
    plan |= {name: ("float32", shape) for name, shape in missing.items()}
    done = 0
    with Writer(path, plan) as writer:
        for tensor in tensors:
            progress("Importing the weights", done, total)
            writer.add(_converted(file, tensor, config))
            done += tensor.bytes
        writer.add(_zeros(missing))
    progress("Importing the weights", total, total)
    return writer.sha256


def _planned(name: str, tensor: GgufTensor) -> Plan:
    if tensor.type not in BITS:
        return {name: ("float32" if tensor.type == "F32" else "float16", tensor.shape)}
    rows, inputs = tensor.shape
    stem = name.removesuffix(".weight")
    groups = ("float32", (rows, inputs // GROUP))
    return {
        name: ("uint32", (rows, inputs * BITS[tensor.type] // 32)),
        f"{stem}.scales": groups,
        f"{stem}.biases": groups,
    }


def _converted(file: GgufFile, tensor: GgufTensor, config: dict[str, Any]) -> Iterator[tuple[str, Array]]:
    """The tensor under its mlx-lm name(s), in the order of `_planned`, its rows in mlx-lm's order."""
    name = target_name(file, tensor.name)
    order = row_order(config, tensor.name, tensor.shape[0])
    blocks = file.blocks(tensor)
    if tensor.type not in BITS:
        floats = unpack_floats(blocks, tensor.type)
        yield name, floats if order is None else floats[order]
        return
    matrix = pack(blocks, tensor.type)
    if not np.isfinite(matrix.scales).all() or not np.isfinite(matrix.biases).all():
        raise ModelDamaged(f"{file.path} is damaged: {tensor.name} holds a scale that is not a number")
    if order is not None:
        matrix = matrix.rows(order)
    stem = name.removesuffix(".weight")
    yield from ((name, matrix.weight), (f"{stem}.scales", matrix.scales), (f"{stem}.biases", matrix.biases))


def _missing_biases(plan: Plan, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """mlx-lm has one switch for all attention biases (and one for the MLP's); those the file lacks are zeros."""
    wanted = ("self_attn." if config["attention_bias"] else "-", "mlp." if config["mlp_bias"] else "-")
    stems = [name.removesuffix(".weight") for name in plan if name.endswith("_proj.weight")]
    chosen = [stem for stem in stems if any(part in stem for part in wanted)]
    return {f"{stem}.bias": plan[f"{stem}.weight"][1][:1] for stem in chosen if f"{stem}.bias" not in plan}


def _zeros(missing: dict[str, tuple[int, ...]]) -> Iterator[tuple[str, Array]]:
    for name, shape in missing.items():
        yield name, np.zeros(shape, np.float32)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
