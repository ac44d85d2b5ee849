"""A SentencePiece model (`tokenizer.model`) as a tokenizer.json, so that there is one face and one encoder.

The file is a protocol buffer (google/sentencepiece, src/sentencepiece_model.proto); the few fields that matter are
read here. Encoding this way releases the GIL, and ids are those of the sentencepiece library, except that a text which
follows a control token and already begins with a space gets no second one: templates write that space themselves.
"""

import base64
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import TokenizerError
from .folder import Folder
from .specification import Specification, control_texts, special_token, without_controls

SPACE = "\u2581"
_UNIGRAM, _BPE = 1, 2
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary; its place is its id."""

    text: str
    score: float
    kind: int = 1


@dataclass(frozen=True, slots=True)
class Model:
    """What a model file says. bos and eos are ids, -1 where there is none."""

    pieces: list[Piece]
    kind: int
    bos: int
    eos: int
    byte_fallback: bool
    rule: str
    charsmap: bytes
    prefix: bool
    squeeze: bool

    @classmethod
    def read(cls, file: Path) -> "Model":
        """Raises TokenizerError when the file is no SentencePiece model."""
        try:
            fields = list(_fields(file.read_bytes()))
            pieces = [_piece(value) for number, value in fields if number == 1]
            trainer = dict(_fields(next((v for n, v in fields if n == 2), b"")))
            normalizer = dict(_fields(next((v for n, v in fields if n == 3), b"")))
        except (OSError, ValueError, IndexError, TypeError, struct.error) as error:
            raise TokenizerError(f"{file} is no SentencePiece model: {error}") from error
        kind = trainer.get(3, _UNIGRAM)
        if kind not in (_UNIGRAM, _BPE) or not pieces:
            raise TokenizerError(f"{file}: only BPE and unigram SentencePiece models are supported")
        return cls(
            pieces,
            kind,
            bos=_signed(trainer.get(41, 1)),
            eos=_signed(trainer.get(42, 2)),
            byte_fallback=bool(trainer.get(35, 0)),
            rule=normalizer.get(1, b"").decode(),
            charsmap=normalizer.get(2, b""),
            prefix=bool(normalizer.get(3, 1)),
            squeeze=bool(normalizer.get(4, 1)),
        )


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and raw values of one message (protobuf wire format)."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(data):
            raise ValueError("it is cut short")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _piece(data: bytes) -> Piece:
    fields = dict(_fields(data))
    return Piece(fields[1].decode(), struct.unpack("<f", fields[2])[0] if 2 in fields else 0.0, fields.get(3, 1))


def read_sentencepiece(file: Path, folder: Folder) -> tuple[Specification, Folder]:
    """The specification, and the folder completed with the model's own BOS, EOS and unknown token."""
    model = Model.read(file)
    special = {name: model.pieces[id].text for name, id in (("bos_token", model.bos), ("eos_token", model.eos))
               if 0 <= id < len(model.pieces)}  # fmt: skip
    folder = folder.completed(special)
    marked = [id for id, p in enumerate(model.pieces) if p.kind in (_UNKNOWN, _CONTROL) or _own_word(p)]
    added = [special_token(id, model.pieces[id].text, special=not _own_word(model.pieces[id])) for id in marked]
    controls = control_texts(added, folder.templates.values())
    after_control = _tokenizer(model, added, first=False)
    at_start = _tokenizer(model, added, first=True)
    texts = {token["id"]: token["content"] for token in added if token["content"] in controls}
    bos = folder.special.get("bos_token") if folder.adds_bos is not False else None
    return Specification(
        full=after_control,
        literal=without_controls(at_start, texts),
        rest=without_controls(after_control, texts),
        controls=controls,
        registered=tuple(t["content"] for t in added if t["special"])[3:],
        prefix=tuple(id for id in marked if model.pieces[id].text == bos),
        plain_is_literal=True,
    ), folder


def _own_word(piece: Piece) -> bool:
    """A user-defined piece is matched before all else; runs of spaces come out of the merges anyway."""
    return piece.kind == _USER_DEFINED and bool(piece.text.strip(f"{SPACE} "))


def _tokenizer(model: Model, added: list[dict[str, Any]], *, first: bool) -> dict[str, Any]:
    """first: the text begins a text, where the reference always adds a space."""
    normalizers: list[dict[str, Any]] = []
    if model.charsmap:
        if model.rule.startswith("nmt"):  # `Precompiled` takes CRLF for one character and loses half of it
            normalizers.append({"type": "Replace", "pattern": {"String": "\r\n"}, "content": "  "})
        charsmap = base64.b64encode(model.charsmap).decode()
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if model.squeeze:
        normalizers.append({"type": "Replace", "pattern": {"Regex": r"\A +| +\z"}, "content": ""})
        normalizers.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    if model.prefix and first:
        normalizers.append({"type": "Prepend", "prepend": SPACE})
    normalizers.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": False}
    decoders: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "}]
    decoders += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    if model.prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": metaspace if model.prefix and not first else None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _unigram(model) if model.kind == _UNIGRAM else _bpe(model),
    }


def _unigram(model: Model) -> dict[str, Any]:
    """Pieces that no text may reach (control, unknown, bytes) keep their names and get a score that never wins."""
    hidden = min(p.score for p in model.pieces) - 1000.0
    apart = (_UNKNOWN, _CONTROL, _BYTE)
    return {
        "type": "Unigram",
        "unk_id": next((id for id, p in enumerate(model.pieces) if p.kind == _UNKNOWN), None),
        "vocab": [[p.text, hidden if p.kind in apart else p.score] for p in model.pieces],
        "byte_fallback": model.byte_fallback,
    }


def _bpe(model: Model) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": next((p.text for p in model.pieces if p.kind == _UNKNOWN), None),
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": model.byte_fallback,
        "ignore_merges": False,
        "vocab": {p.text: id for id, p in enumerate(model.pieces)},
        "merges": _merges(model),
    }


def _merges(model: Model) -> list[list[str]]:
    """Every way to make a piece of two others, best score first: the order in which the reference merges.

    Of equal scores the reference takes the leftmost pair, so what it has begun grows: longer left halves come first.
    """
    mergeable = {p.text: -p.score for p in model.pieces if p.kind not in (_UNKNOWN, _CONTROL, _BYTE)}
    merges = [
        (cost, -at, len(text), text[:at], text[at:])
        for text, cost in mergeable.items()
        for at in range(1, len(text))
        if text[:at] in mergeable and text[at:] in mergeable
    ]
    return [[left, right] for *_, left, right in sorted(merges)]
