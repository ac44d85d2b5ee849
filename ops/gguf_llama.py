"""What a llama-architecture GGUF means: its metadata as an mlx-lm config, its tensors under their mlx-lm names.

llama.cpp's converter permutes the rows of Q and K for RoPE on neighbouring pairs; mlx-lm rotates halves, so the rows
go back here. Whatever we do not know how to carry over is refused by name: a model that is nearly right answers
"Paris" all the same.
"""

import math
from typing import Any

import numpy as np

from .gguf_blocks import BITS, GROUP, Array
from .gguf_file import GgufFile, GgufTensor
from .model_errors import ModelDamaged, ModelUnsupported

WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
BLOCK = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
# Keys that llama.cpp obeys and mlx-lm's llama has no place for, with the value that asks for nothing.
INERT = {
    "expert_count": 0, "attention.scale": 0.0, "attention.clamp_kqv": 0.0, "attention.max_alibi_bias": 0.0,
    "attention.causal": True, "logit_scale": 0.0, "residual_scale": 0.0, "embedding_scale": 0.0,
    "rope.scaling.attn_factor": 1.0,
}  # fmt: skip
FREQUENCIES = "rope_freqs.weight"


def target_name(file: GgufFile, name: str) -> str:
    """mlx-lm's name for the GGUF tensor `name` ("blk.3.attn_q.weight"). Raises ModelUnsupported."""
    stem, _, kind = name.rpartition(".")
    parts = stem.split(".")
    if kind in ("weight", "bias"):
        if stem in WHOLE and kind == "weight":
            return f"{WHOLE[stem]}.weight"
        if len(parts) == 3 and parts[0] == "blk" and parts[1].isdigit() and parts[2] in BLOCK:
            module = BLOCK[parts[2]]
            if kind == "weight" or module.endswith("_proj"):
                return f"model.layers.{int(parts[1])}.{module}.{kind}"
    raise ModelUnsupported(f"{file.path}: tensor {name} has no place in a llama model of mlx-lm")


def row_order(config: dict[str, Any], name: str, rows: int) -> Array | None:
    """Where each row of mlx-lm's matrix or bias lies in the GGUF's, for Q and K; None: nothing was permuted.

    The converter turned (head, half, pair) into (head, pair, half).
    """
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    part = name.split(".")[-2]
    if part not in heads:
        return None
    return np.arange(rows).reshape(heads[part], -1, 2).swapaxes(1, 2).reshape(-1)


def llama_config(file: GgufFile) -> dict[str, Any]:
    """The config.json of the model in `file`, end tokens left to the tokenizer. Raises ModelError, naming the key."""
    architecture = file.metadata.get("general.architecture")
    if architecture != "llama":
        raise ModelUnsupported(f"{file.path} is of architecture {architecture!r}; only 'llama' can be imported")
    _refuse_what_has_no_place(file)
    hidden = _count(file, "embedding_length")
    heads = _heads(file, hidden)
    embedding = _tensor(file, "token_embd.weight")
    carried = {target_name(file, name) for name in file.tensors if name != FREQUENCIES}
    biases = " ".join(name for name in carried if name.endswith(".bias"))
    theta = _float(file, "rope.freq_base", 10000.0)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": _count(file, "feed_forward_length"),
        "num_hidden_layers": _count(file, "block_count"),
        **heads,
        "max_position_embeddings": _count(file, "context_length"),
        "rms_norm_eps": _float(file, "attention.layer_norm_rms_epsilon", 0.0),
        "rope_theta": theta,
        "rope_scaling": _rope_scaling(file, heads["head_dim"], theta),
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "self_attn." in biases,
        "mlp_bias": "mlp." in biases,
        "hidden_act": "silu",
        "torch_dtype": "float32",
    }
    _expect_every_tensor(file, config)
    return config


def _heads(file: GgufFile, hidden: int) -> dict[str, int]:
    """The attention's geometry: every head rotated whole, keys as wide as values."""
    heads = _count(file, "attention.head_count")
    head_dim = _count(file, "attention.key_length", hidden // heads)
    if _count(file, "attention.value_length", head_dim) != head_dim:
        raise ModelUnsupported(f"{file.path}: llama.attention.value_length differs from key_length")
    if _count(file, "rope.dimension_count", head_dim) != head_dim:
        raise ModelUnsupported(f"{file.path}: llama.rope.dimension_count is not the head size {head_dim}")
    kv_heads = _count(file, "attention.head_count_kv", heads)
    return {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim}


def quantization(file: GgufFile) -> dict[str, Any] | None:
    """mlx-lm's `quantization`: the commonest bits on top, and every module that has other bits by its name."""
    bits = {
        target_name(file, tensor.name).removesuffix(".weight"): BITS[tensor.type]
        for tensor in file.tensors.values()
        if tensor.type in BITS and tensor.name != FREQUENCIES
    }
    if not bits:
        return None
    values = list(bits.values())
    usual = max(set(values), key=values.count)
    others = {name: {"group_size": GROUP, "bits": some} for name, some in bits.items() if some != usual}
    return {"group_size": GROUP, "bits": usual, "mode": "affine", **others}


def _refuse_what_has_no_place(file: GgufFile) -> None:
    for key, nothing in INERT.items():
        value = file.metadata.get(f"llama.{key}", nothing)
        if value != nothing and not (key.endswith("scale") and value == 1.0):
            raise ModelUnsupported(f"{file.path}: llama.{key} = {value!r} is not supported")
    window = file.metadata.get("llama.attention.sliding_window", 0)
    if window and window < _count(file, "context_length"):
        raise ModelUnsupported(f"{file.path}: llama.attention.sliding_window = {window} is not supported")


def _count(file: GgufFile, key: str, default: int | None = None) -> int:
    value = file.metadata.get(f"llama.{key}", default)
    if isinstance(value, list) and len(set(value)) == 1:
        value = value[0]
    if isinstance(value, list):
        raise ModelUnsupported(f"{file.path}: llama.{key} differs from layer to layer, which is not supported")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelDamaged(f"{file.path} is damaged: llama.{key} is {value!r}")
    return value


def _float(file: GgufFile, key: str, default: float) -> float:
    """A positive number. The file stores a float32; its shortest decimal is what the model's author wrote."""
    value = file.metadata.get(f"llama.{key}", default)
    if not isinstance(value, float | int) or not 0 < value < math.inf:
        raise ModelDamaged(f"{file.path} is damaged: llama.{key} is {value!r}")
    return float(str(np.float32(value)))


def _tensor(file: GgufFile, name: str) -> GgufTensor:
    if name not in file.tensors:
        raise ModelDamaged(f"{file.path} is damaged: it lacks the tensor {name}")
    return file.tensors[name]


def _expect_every_tensor(file: GgufFile, config: dict[str, Any]) -> None:
    """Raises ModelDamaged unless each matrix is there and of the shape that the metadata promises."""
    if config["num_hidden_layers"] > len(file.tensors):
        raise ModelDamaged(f"{file.path} is damaged: {config['num_hidden_layers']} blocks, {len(file.tensors)} tensors")
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (hidden,), "ffn_norm": (hidden,), "attn_q": (queries, hidden), "attn_k": (keys, hidden),
        "attn_v": (keys, hidden), "attn_output": (hidden, queries), "ffn_gate": (inner, hidden),
        "ffn_up": (inner, hidden), "ffn_down": (hidden, inner),
    }  # fmt: skip
    expected = {f"blk.{i}.{part}.weight": s for i in range(config["num_hidden_layers"]) for part, s in shapes.items()}
    expected |= {"token_embd.weight": (config["vocab_size"], hidden), "output_norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        expected["output.weight"] = (config["vocab_size"], hidden)
    for name, shape in expected.items():
        if _tensor(file, name).shape != shape:
            raise ModelDamaged(f"{file.path}: {name} is {file.tensors[name].shape}, the metadata says {shape}")


def _rope_scaling(file: GgufFile, head_dim: int, theta: float) -> dict[str, Any] | None:
    """mlx-lm's `rope_scaling`. Raises ModelUnsupported for a kind that mlx-lm would not compute as llama.cpp does."""
    kind = file.metadata.get("llama.rope.scaling.type", "none")
    factor = _float(file, "rope.scaling.factor", _float(file, "rope.scale_linear", 1.0))
    if "llama.rope.scale_linear" in file.metadata and kind == "none":
        kind = "linear"
    if FREQUENCIES in file.tensors and kind == "none":
        return _llama3_scaling(file, head_dim, theta)
    if FREQUENCIES in file.tensors or kind not in ("none", "linear"):
        raise ModelUnsupported(f"{file.path}: rope scaling of type {kind!r} is not supported")
    return {"type": "linear", "factor": factor} if kind == "linear" and factor != 1.0 else None


def _llama3_scaling(file: GgufFile, head_dim: int, theta: float) -> dict[str, Any]:
    """Llama 3.1 stores one divisor a frequency: accepted if the published rule gives those very ones."""
    tensor = file.tensors[FREQUENCIES]
    stored = file.blocks(tensor).view("<f4").reshape(-1) if tensor.type == "F32" else np.zeros(0, np.float32)
    factor = float(stored.max(initial=1.0))
    scaling = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    wavelengths = 2 * math.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
    smooth = (8192 / wavelengths - 1.0) / (4.0 - 1.0)
    expected = 1 / ((1 - smooth.clip(0, 1)) / factor + smooth.clip(0, 1))
    if stored.shape != expected.shape or not np.allclose(stored, expected, rtol=1e-4):
        raise ModelUnsupported(f"{file.path}: {FREQUENCIES} is not the rope scaling of Llama 3.1")
    return {"rope_type": "llama3", "factor": factor, **scaling}
