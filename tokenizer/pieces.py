"""What one token id adds to the text: its exact bytes, read off the tokenizer's decoder.

The decoders in use (ByteLevel; Replace, ByteFallback, Fuse, Strip; Metaspace) all turn a token into bytes that do
not depend on its neighbours, except for a space at the very beginning of the text. So a stream needs no look back.
"""

from dataclasses import dataclass
from typing import Any

import tokenizers


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in of each byte, backwards (Radford et al. 2019, byte-level BPE)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    table, beyond = {}, 0x100
    for byte in range(256):
        if byte in printable:
            table[chr(byte)] = byte
        else:
            table[chr(beyond)] = byte
            beyond += 1
    return table


_ALPHABET = byte_alphabet()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a decoder turns tokens into bytes.

    lead: how many spaces the beginning of the whole text loses. first: whether the first token loses every marker
    of a space (Metaspace). exact: False when a step of the decoder is none of those we know.
    """

    byte_level: bool = False
    byte_fallback: bool = False
    replaced: tuple[tuple[str, str], ...] = ()
    lead: int = 0
    first: str = ""
    exact: bool = True

    @classmethod
    def read(cls, decoder: Any, pre_tokenizer: Any) -> "Recipe":
        """From the `decoder` and `pre_tokenizer` of a tokenizer.json."""
        steps = list(_flat(decoder, "decoders"))
        kinds = {step["type"] for step in steps}
        hybrid = "ByteLevel" not in kinds and any(
            step["type"] == "ByteLevel" for step in _flat(pre_tokenizer, "pretokenizers")
        )
        fallback = "ByteFallback" in kinds
        if hybrid:  # a vocabulary spelled in the byte alphabet under a SentencePiece decoder would show its markers
            return cls(byte_level=True, byte_fallback=fallback)
        return cls(
            byte_level="ByteLevel" in kinds,
            byte_fallback=fallback,
            replaced=tuple(pair for step in steps for pair in _replaced(step)),
            lead=sum(step["start"] for step in steps if step["type"] == "Strip"),
            first=next((s["replacement"] for s in steps if s["type"] == "Metaspace" and _prepends(s)), ""),
            exact=bool(steps) and all(_known(step) for step in steps),
        )

    def bytes_of(self, token: str) -> bytes:
        """The raw bytes of one token, as they stand anywhere but at the beginning of a text."""
        if self.byte_fallback and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            try:
                return bytes([int(token[3:5], 16)])
            except ValueError:
                pass
        for old, new in self.replaced:
            token = token.replace(old, new)
        if self.byte_level:
            try:
                return bytes([_ALPHABET[character] for character in token])
            except KeyError:  # an added token is spelled as it is
                pass
        return token.encode()


def _flat(step: Any, inside: str) -> Any:
    if not step:
        return
    if step["type"] == "Sequence":
        for inner in step[inside]:
            yield from _flat(inner, inside)
    else:
        yield step


def _replaced(step: Any) -> list[tuple[str, str]]:
    if step["type"] == "Replace" and "String" in step["pattern"]:
        return [(step["pattern"]["String"], step["content"])]
    return [(step["replacement"], " ")] if step["type"] == "Metaspace" else []


def _prepends(step: Any) -> bool:
    return bool(step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never") != "never")


def _known(step: Any) -> bool:
    kind = step["type"]
    if kind == "Replace":
        return "String" in step["pattern"]
    if kind == "Strip":
        return bool(step["content"] == " " and step["stop"] == 0)
    return kind in ("ByteLevel", "ByteFallback", "Fuse", "Metaspace")


class Pieces:
    """Bytes of every id, worked out when first asked for. Ids without an entry have none."""

    __slots__ = ("_bytes", "_tokenizer", "recipe")

    def __init__(self, tokenizer: tokenizers.Tokenizer, recipe: Recipe) -> None:
        self._tokenizer = tokenizer
        self._bytes: dict[int, bytes] = {}
        self.recipe = recipe

    def __getitem__(self, id: int) -> bytes:
        known = self._bytes.get(id)
        if known is None:
            token = self._token(id)
            known = self._bytes[id] = self.recipe.bytes_of(token) if token else b""
        return known

    def first(self, id: int) -> bytes:
        """The bytes of an id that begins a text: Metaspace drops the space there."""
        if not self.recipe.first:
            return self[id]
        token = self._token(id)
        return self.recipe.bytes_of(token.replace(self.recipe.first, "")) if token else b""

    def _token(self, id: int) -> str | None:
        # tokenizers reads ids as unsigned 32-bit numbers.
        return self._tokenizer.id_to_token(id) if 0 <= id < 1 << 32 else None
