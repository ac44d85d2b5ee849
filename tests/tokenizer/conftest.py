"""Tokenizers for this room's tests: the suite's byte vocabulary, and a SentencePiece-shaped one. No weights."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from soloist.tokenizer.tokenizer import Tokenizer

MARK = "\u2581"


def sentencepiece_shaped(pieces: Sequence[str]) -> dict[str, Any]:
    """A tokenizer.json as transformers makes it of a SentencePiece model: unknown, BOS, EOS, all bytes, pieces."""
    vocabulary = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    replace = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    prepend = {"type": "Prepend", "prepend": MARK}
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    model = {
        "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
        "vocab": {piece: id for id, piece in enumerate(vocabulary)}, "merges": [],
    }  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": id, "content": vocabulary[id], **flags} for id in range(3)],
        "normalizer": {"type": "Sequence", "normalizers": [prepend, spaces]}, "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [replace, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]},
        "model": model,
    }  # fmt: skip


def write(folder: Path, tokenizer: dict[str, Any], **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"} | config))
    return folder


@pytest.fixture(scope="session")
def byte_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """byte_folder(pieces, template=..., bos_first=...) writes the suite's byte vocabulary and gives its folder."""

    def make(pieces: Sequence[Any] = (), **options: Any) -> Path:
        folder = tmp_path_factory.mktemp("bytes")
        tiny_models.write_tokenizer(folder, tiny_models.Vocabulary(list(pieces)), **options)
        return folder

    return make


@pytest.fixture(scope="session")
def chatml(byte_folder: Callable[..., Path]) -> Tokenizer:
    return Tokenizer.load(byte_folder())


@pytest.fixture(scope="session")
def spm(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    pieces = [MARK, f"{MARK}leading", f"{MARK}x", "a"]
    return Tokenizer.load(write(tmp_path_factory.mktemp("spm"), sentencepiece_shaped(pieces)))
