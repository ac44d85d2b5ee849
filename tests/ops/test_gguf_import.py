"""Small GGUFs of every supported type: bit-equal weights, and logits of an independent numpy model."""

import json
import math
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
import pytest
import tiny_gguf
from mlx_lm.utils import load_model
from soloist.ops.gguf_import import import_gguf

KINDS = ("F32", "F16", "Q4_0", "Q4_1", "Q8_0")
IDS = [5, 77, 200, 3, 3, 120, 41, 9]


def imported(path: Path, folder: Path) -> Path:
    folder.mkdir()
    import_gguf(path, folder)
    return folder


def our_logits(folder: Path) -> np.ndarray:
    model, _ = load_model(folder)
    return np.array(model(mx.array([IDS]))[0].astype(mx.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_the_imported_model_computes_what_llama_cpps_rules_give(kind: str, tmp_path: Path) -> None:
    path = tiny_gguf.write(tmp_path / "m.gguf", tiny_gguf.weights(), kind)
    tolerance = 2e-2 if kind == "F16" else 1e-3  # mlx-lm computes a half layer in half precision
    assert np.abs(our_logits(imported(path, tmp_path / "m")) - tiny_gguf.logits(path, IDS)).max() < tolerance


@pytest.mark.parametrize("kind", KINDS)
def test_the_packed_weights_are_exactly_what_gguf_dequantises(kind: str, tmp_path: Path) -> None:
    path = tiny_gguf.write(tmp_path / "m.gguf", tiny_gguf.weights(tied=False), kind)
    ours = mx.load(str(imported(path, tmp_path / "m") / "model.safetensors"))
    tensor = next(t for t in gguf.GGUFReader(path).tensors if t.name == "blk.1.ffn_down.weight")
    stem = "model.layers.1.mlp.down_proj"
    got = ours[f"{stem}.weight"]
    if f"{stem}.scales" in ours:
        got = mx.dequantize(got, ours[f"{stem}.scales"], ours[f"{stem}.biases"], 32, 8 if kind == "Q8_0" else 4)
    assert np.array_equal(np.array(got.astype(mx.float32)), gguf.dequantize(tensor.data, tensor.tensor_type))


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_attention_biases_follow_their_rows_and_absent_ones_are_zero(kind: str, tmp_path: Path) -> None:
    path = tiny_gguf.write(tmp_path / "m.gguf", tiny_gguf.weights(tied=False, biases=True), kind)
    folder = imported(path, tmp_path / "m")
    assert np.abs(our_logits(folder) - tiny_gguf.logits(path, IDS)).max() < 1e-3
    assert not mx.load(str(folder / "model.safetensors"))["model.layers.0.self_attn.o_proj.bias"].any()


def test_linear_rope_scaling_is_carried_over(tmp_path: Path) -> None:
    def scaled(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(4.0)

    path = tiny_gguf.write(tmp_path / "m.gguf", tiny_gguf.weights(), edit=scaled)
    expected = tiny_gguf.logits(path, IDS, np.full(tiny_gguf.HEAD // 2, 4.0))
    assert np.abs(our_logits(imported(path, tmp_path / "m")) - expected).max() < 1e-3


def llama3_divisors() -> np.ndarray:
    """As Llama 3.1 publishes its scaling: long waves slowed by 8, short ones left, a smooth band between."""
    divisors = []
    for i in range(0, tiny_gguf.HEAD, 2):
        wavelength = 2 * math.pi * tiny_gguf.THETA ** (i / tiny_gguf.HEAD)
        if wavelength < 8192 / 4:
            divisors.append(1.0)
        elif wavelength > 8192 / 1:
            divisors.append(8.0)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            divisors.append(1 / ((1 - smooth) / 8.0 + smooth))
    return np.array(divisors, np.float32)


def test_llama_3_rope_scaling_is_recognised_from_its_divisors(tmp_path: Path) -> None:
    tensors = tiny_gguf.weights() | {"rope_freqs.weight": llama3_divisors()}
    path = tiny_gguf.write(tmp_path / "m.gguf", tensors)
    folder = imported(path, tmp_path / "m")
    assert json.loads((folder / "config.json").read_text())["rope_scaling"]["factor"] == 8.0
    expected = tiny_gguf.logits(path, IDS, llama3_divisors())
    assert np.abs(our_logits(folder) - expected).max() < 1e-3


def test_modules_of_other_bits_are_named_in_the_quantization(tmp_path: Path) -> None:
    tensors = tiny_gguf.weights()
    path = tmp_path / "mixed.gguf"
    original = gguf.GGUFWriter.add_tensor

    def mixed(writer: Any, name: str, tensor: np.ndarray, raw_dtype: Any = None) -> None:
        kind = gguf.GGMLQuantizationType.Q8_0
        if name == "token_embd.weight":
            tensor, raw_dtype = gguf.quantize(tensors[name], kind), kind
        original(writer, name, tensor, raw_dtype=raw_dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf.GGUFWriter, "add_tensor", mixed)
        tiny_gguf.write(path, tensors, "Q4_0")
    folder = imported(path, tmp_path / "m")
    quantization = json.loads((folder / "config.json").read_text())["quantization"]
    assert quantization["bits"] == 4
    assert quantization["model.embed_tokens"] == {"group_size": 32, "bits": 8}
    assert np.abs(our_logits(folder) - tiny_gguf.logits(path, IDS)).max() < 1e-3


def test_importing_needs_neither_mlx_nor_the_gguf_package() -> None:
    import subprocess
    import sys

    code = (
        "import sys, soloist.ops.model_store, soloist.ops.models_command, soloist.ops.gguf_import; "
        "sys.exit(str({'mlx', 'mlx_lm', 'gguf', 'transformers'} & set(sys.modules)) if "
        "{'mlx', 'mlx_lm', 'gguf', 'transformers'} & set(sys.modules) else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
