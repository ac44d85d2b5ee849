"""Tiny llama GGUFs written with the `gguf` package, and what they compute, in numpy, by llama.cpp's own rules.

The forward pass here rotates neighbouring pairs on the rows as the file has them: it shares neither layout nor code
with the importer, so an agreement of the two is evidence.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tiny_models import ALPHABET

HIDDEN, HEADS, KV_HEADS, HEAD, INNER, LAYERS = 64, 4, 2, 32, 96, 2
SPECIALS = ("<|bos|>", "<|im_end|>", "<|endoftext|>")
TOKENS = [*SPECIALS, *ALPHABET.values()]
TYPES = [3] * len(SPECIALS) + [1] * len(ALPHABET)
EPSILON, THETA = 1e-5, 10000.0
Edit = Callable[[gguf.GGUFWriter], None]


def weights(seed: int = 0, tied: bool = True, biases: bool = False) -> dict[str, np.ndarray]:
    """Random float32 tensors under GGUF's names."""
    dice = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (len(TOKENS), HIDDEN), "output_norm.weight": (HIDDEN,)}
    queries, keys = HEADS * HEAD, KV_HEADS * HEAD
    for i in range(LAYERS):
        matrices = {
            "attn_q": (queries, HIDDEN), "attn_k": (keys, HIDDEN), "attn_v": (keys, HIDDEN),
            "attn_output": (HIDDEN, queries), "ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN),
            "ffn_down": (HIDDEN, INNER), "attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,),
        }  # fmt: skip
        shapes |= {f"blk.{i}.{part}.weight": shape for part, shape in matrices.items()}
        if biases:
            shapes |= {f"blk.{i}.{part}.bias": matrices[part][:1] for part in ("attn_q", "attn_k", "attn_v")}
    if not tied:
        shapes["output.weight"] = shapes["token_embd.weight"]
    return {name: dice.normal(0, 0.15, shape).astype(np.float32) for name, shape in shapes.items()}


def write(path: Path, tensors: dict[str, np.ndarray], kind: str = "F32", edit: Edit | None = None, **arch: Any) -> Path:
    """A GGUF of `tensors`, matrices stored as `kind`. edit: a last word on the metadata."""
    writer = gguf.GGUFWriter(path, arch.get("architecture", "llama"))
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(THETA)
    if arch.get("vocabulary", True):
        add_vocabulary(writer, arch.get("pre", "gpt-2"))
    if edit:
        edit(writer)
    chosen = gguf.GGMLQuantizationType[kind]
    for name, tensor in tensors.items():
        if tensor.ndim == 1 or kind == "F32":
            writer.add_tensor(name, tensor)
        else:
            writer.add_tensor(name, gguf.quantize(tensor, chosen), raw_dtype=chosen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_vocabulary(writer: gguf.GGUFWriter, pre: str) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types(TYPES)
    writer.add_array("tokenizer.ggml.merges", [])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template("{{ messages[0]['content'] }}")


def logits(path: Path, ids: list[int], divisors: np.ndarray | None = None) -> np.ndarray:
    """float64 (positions, vocabulary). divisors: of each rotation frequency, as rope_freqs.weight holds them."""
    stored = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float64) for t in gguf.GGUFReader(path).tensors}
    hidden = stored["token_embd.weight"][ids]
    for i in range(LAYERS):
        layer = {name.removeprefix(f"blk.{i}."): t for name, t in stored.items() if name.startswith(f"blk.{i}.")}
        hidden = hidden + _attention(layer, _norm(hidden, layer["attn_norm.weight"]), divisors)
        normed = _norm(hidden, layer["ffn_norm.weight"])
        gate = normed @ layer["ffn_gate.weight"].T
        inner = gate / (1 + np.exp(-gate)) * (normed @ layer["ffn_up.weight"].T)
        hidden = hidden + inner @ layer["ffn_down.weight"].T
    head = stored.get("output.weight", stored["token_embd.weight"])
    return _norm(hidden, stored["output_norm.weight"]) @ head.T


def _norm(hidden: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return hidden / np.sqrt((hidden**2).mean(-1, keepdims=True) + EPSILON) * weight


def _attention(layer: dict[str, np.ndarray], hidden: np.ndarray, divisors: np.ndarray | None) -> np.ndarray:
    def projected(part: str, heads: int) -> np.ndarray:
        flat = hidden @ layer[f"{part}.weight"].T + layer.get(f"{part}.bias", 0)
        return flat.reshape(len(hidden), heads, HEAD).swapaxes(0, 1)

    queries = _rotated(projected("attn_q", HEADS), divisors)
    keys = _rotated(projected("attn_k", KV_HEADS), divisors).repeat(HEADS // KV_HEADS, axis=0)
    values = projected("attn_v", KV_HEADS).repeat(HEADS // KV_HEADS, axis=0)
    scores = queries @ keys.swapaxes(1, 2) / np.sqrt(HEAD)
    scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    share = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (share / share.sum(-1, keepdims=True)) @ values
    return mixed.swapaxes(0, 1).reshape(len(hidden), -1) @ layer["attn_output.weight"].T


def _rotated(heads: np.ndarray, divisors: np.ndarray | None) -> np.ndarray:
    """RoPE on neighbouring pairs (2i, 2i + 1), as ggml's NORM type does."""
    frequencies = THETA ** -(np.arange(0, HEAD, 2) / HEAD) / (1.0 if divisors is None else divisors)
    turns = np.exp(1j * np.arange(heads.shape[1])[:, None] * frequencies)
    turned = (heads[..., 0::2] + 1j * heads[..., 1::2]) * turns
    return np.stack([turned.real, turned.imag], axis=-1).reshape(heads.shape)
