"""Tiny model folders that the suite writes itself: scripted llamas with known answers, and small random ones.

A scripted model is a one-layer llama whose attention and MLP are zero: the hidden state is the one-hot embedding
of the last token, so the hand-written lm_head decides the next token from the last one alone. `script` recites a
list of pieces and then its end token; `dist` draws from one fixed distribution for ever, whatever came before.
The tokenizer is byte-level without merges: ids 0-255 are the bytes, then control tokens, then the pieces.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

SPECIALS = ("<|bos|>", "<|eos|>", "<|eot|>", "<|im_start|>", "<|im_end|>")
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
CONTROL = {name: 256 + i for i, name in enumerate(SPECIALS + MARKERS)}
BOS, EOS, EOT, IM_START, IM_END = (CONTROL[name] for name in SPECIALS)
ABCD = {"a": 0.5, "b": 0.3, "c": 0.15, "d": 0.05}
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FAR_BELOW = -30.0
Piece = str | bytes | int


def byte_alphabet() -> dict[int, str]:
    """The printable character that GPT-2's byte-level vocabularies use for each byte."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in keep}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(256 + len(table) - len(keep))
    return table


ALPHABET = byte_alphabet()


class Vocabulary:
    """Bytes, control tokens, then one id for each piece that is neither. An int piece is a raw id."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.entries = {character: byte for byte, character in ALPHABET.items()} | CONTROL
        for piece in pieces:
            if not isinstance(piece, int) and piece not in CONTROL:
                self.entries.setdefault(_spell(piece), len(self.entries))

    def id(self, piece: Piece) -> int:
        if isinstance(piece, int):
            return piece
        return CONTROL[piece] if piece in CONTROL else self.entries[_spell(piece)]  # type: ignore[index]


def _spell(piece: str | bytes) -> str:
    raw = piece if isinstance(piece, bytes) else piece.encode()
    return "".join(ALPHABET[byte] for byte in raw)


def _head(vocabulary: Vocabulary, width: int, follow: Mapping[int | None, Mapping[Piece, float]], top: float) -> Any:
    """lm_head whose column s gives the logits after id s; `None` is every id that is not named."""
    norm = math.sqrt(width)  # what RMSNorm makes of a one-hot vector
    head = np.full((width, width), FAR_BELOW / norm, np.float32)
    for source in range(width):
        for piece, probability in follow.get(source, follow[None]).items():
            head[vocabulary.id(piece), source] = (top + math.log(probability)) / norm
    return head


def _llama_weights(head: Any) -> dict[str, Any]:
    width = head.shape[0]
    layer, ones = "model.layers.0.", np.ones(width, np.float32)
    weights = {
        "model.embed_tokens.weight": np.eye(width, dtype=np.float32),
        "lm_head.weight": head,
        "model.norm.weight": ones,
        f"{layer}input_layernorm.weight": ones.copy(),
        f"{layer}post_attention_layernorm.weight": ones.copy(),
        f"{layer}mlp.gate_proj.weight": np.zeros((64, width), np.float32),
        f"{layer}mlp.up_proj.weight": np.zeros((64, width), np.float32),
        f"{layer}mlp.down_proj.weight": np.zeros((width, 64), np.float32),
    }
    for name in "qkvo":
        weights[f"{layer}self_attn.{name}_proj.weight"] = np.zeros((width, width), np.float32)
    return weights


def _tokenizer(vocabulary: Vocabulary, bos_first: bool) -> dict[str, Any]:
    added = [
        {"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": name in SPECIALS}
        for name, i in CONTROL.items()
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    start, text = {"SpecialToken": {"id": "<|bos|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    post = {
        "type": "TemplateProcessing",
        "single": [start, text],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [BOS], "tokens": ["<|bos|>"]}},
    }
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "vocab": vocabulary.entries, "merges": [],
    }  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": level, "post_processor": post if bos_first else None, "decoder": level, "model": model,
    }  # fmt: skip


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def scripted(
    folder: Path,
    script: Sequence[Piece] | None = None,
    *,
    dist: Mapping[Piece, float] | None = None,
    after_last: Piece = "<|eos|>",
    template: Any = CHATML,
    top: float = 30.0,
    eos: str | Sequence[str] = "<|eos|>",
    generation_config: Mapping[str, Any] | None = None,
    bos_first: bool = False,
    context: int = 4096,
    poison: Mapping[Piece, float] | None = None,
) -> Path:
    """Write a scripted model. `poison` overwrites the lm_head rows of some pieces (NaN, say)."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = Vocabulary(list(dist or script or []))
    width = -(-len(vocabulary.entries) // 64) * 64
    follow: dict[int | None, Mapping[Piece, float]]
    if dist:
        follow = {None: dist}
    else:
        assert script
        pairs = zip(script, [*script[1:], after_last], strict=True)
        follow = {None: {script[0]: 1.0}, **{vocabulary.id(a): {b: 1.0} for a, b in pairs}}
    head = _head(vocabulary, width, follow, top)
    for piece, value in (poison or {}).items():
        head[vocabulary.id(piece), :] = value
    save_file(_llama_weights(head), folder / "model.safetensors", metadata={"format": "mlx"})
    ends = [CONTROL[name] for name in ([eos] if isinstance(eos, str) else eos)]
    _write(folder / "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "num_hidden_layers": 1,
        "intermediate_size": 64, "num_attention_heads": width // 64, "num_key_value_heads": width // 64,
        "head_dim": 64, "rms_norm_eps": 1e-6, "vocab_size": width, "rope_theta": 10000.0,
        "max_position_embeddings": context, "tie_word_embeddings": False, "bos_token_id": BOS,
        "eos_token_id": ends[0] if len(ends) == 1 else ends, "torch_dtype": "float32",
    })  # fmt: skip
    if generation_config is not None:
        _write(folder / "generation_config.json", generation_config)
    write_tokenizer(folder, vocabulary, template, bos_first)
    return folder


def write_tokenizer(folder: Path, vocabulary: Vocabulary, template: Any = CHATML, bos_first: bool = False) -> None:
    """tokenizer.json and tokenizer_config.json; a template of None leaves the model without one."""
    _write(folder / "tokenizer.json", _tokenizer(vocabulary, bos_first))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>", "eos_token": "<|eos|>",
        "clean_up_tokenization_spaces": False, "model_max_length": 4096,
    }  # fmt: skip
    _write(folder / "tokenizer_config.json", config if template is None else config | {"chat_template": template})


LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-6, "vocab_size": 320,
    "rope_theta": 10000.0, "max_position_embeddings": 4096, "bos_token_id": BOS, "eos_token_id": EOS,
    "tie_word_embeddings": False,
}  # fmt: skip
SLIDING = LLAMA | {
    "model_type": "gemma3_text", "sliding_window": 16, "sliding_window_pattern": 2, "query_pre_attn_scalar": 16,
    "rope_local_base_freq": 10000.0, "rope_global_base_freq": 10000.0,
}  # fmt: skip
MAMBA = {
    "model_type": "mamba", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 128, "state_size": 8,
    "num_hidden_layers": 2, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "time_step_rank": 4,
    "tie_word_embeddings": False, "bos_token_id": BOS, "eos_token_id": EOS, "max_position_embeddings": 4096,
}  # fmt: skip


def random_model(folder: Path, config: Mapping[str, Any] = LLAMA, *, seed: int = 0, scale: float = 0.3) -> Path:
    """A small random model over the bytes-and-control vocabulary; it never ends by itself with high probability."""
    import importlib

    import mlx.core as mx
    from mlx.utils import tree_flatten

    folder.mkdir(parents=True, exist_ok=True)
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    model = module.Model(module.ModelArgs.from_dict(dict(config)))
    random = np.random.default_rng(seed)
    weights = {}
    for name, value in tree_flatten(model.parameters()):
        norm = "norm" in name and value.ndim == 1
        drawn = np.ones(value.shape) if norm else random.normal(size=value.shape) * scale
        weights[name] = mx.array(drawn.astype(np.float32))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    _write(folder / "config.json", dict(config))
    write_tokenizer(folder, Vocabulary([]))
    return folder
