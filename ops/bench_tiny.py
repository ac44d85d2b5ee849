"""A tiny random llama over bytes: fast enough for thousands of requests, and real enough to fill every cache."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from .safetensors_file import Writer

WIDTH, LAYERS, HEADS, HEAD, INNER, CONTEXT = 64, 2, 4, 16, 128, 4096
END, START = "<|end|>", "<|start|>"
VOCABULARY = 320
TEMPLATE = "{% for m in messages %}" + START + "{{ m['role'] }}\n{{ m['content'] }}" + END + "{% endfor %}" + START
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
    "intermediate_size": INNER, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HEAD,
    "rms_norm_eps": 1e-6, "vocab_size": VOCABULARY, "rope_theta": 10000.0, "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": True, "bos_token_id": 257, "eos_token_id": 256, "torch_dtype": "float32",
}  # fmt: skip


def tiny_model(folder: Path, seed: int = 0) -> Path:
    """Write it, always the same for a seed. It rarely ends by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    shapes = _shapes()
    random = np.random.default_rng(seed)
    with Writer(folder / "model.safetensors", {name: ("float32", shape) for name, shape in shapes.items()}) as writer:
        for name, shape in shapes.items():
            drawn = np.ones(shape) if len(shape) == 1 else random.normal(size=shape) * 0.3
            writer.add([(name, drawn.astype(np.float32))])
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "chat_template": TEMPLATE}
    files = {"config.json": CONFIG, "tokenizer.json": _tokenizer(), "tokenizer_config.json": tokenizer}
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return folder


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, WIDTH)}
    for layer in range(LAYERS):
        here = f"model.layers.{layer}."
        shapes |= {f"{here}self_attn.{name}_proj.weight": (WIDTH, WIDTH) for name in "qkvo"}
        shapes |= {f"{here}mlp.{name}_proj.weight": (INNER, WIDTH) for name in ("gate", "up")}
        shapes |= {f"{here}mlp.down_proj.weight": (WIDTH, INNER)}
        shapes |= {f"{here}{name}_layernorm.weight": (WIDTH,) for name in ("input", "post_attention")}
    return shapes | {"model.norm.weight": (WIDTH,)}


def _tokenizer() -> dict[str, Any]:
    """One token a byte, GPT-2's printable stand-ins for them, and two control tokens."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    control = [
        {"id": 256 + i, "content": name, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for i, name in enumerate((END, START))
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": control, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "merges": [],
            "vocab": {letter: byte for byte, letter in letters.items()},
        },
    }  # fmt: skip
