"""Ids to text, as they come: whole characters only, nothing lost at the end.

`tokenizers.DecodeStream` would do for byte-level vocabularies. It is not used because a run of byte-fallback tokens
that turns out not to be UTF-8 makes it raise ("Invalid prefix encountered") in the middle of an answer, because it
keeps a character that never completes for itself, and because it decodes every token three times.
"""

import codecs
from collections.abc import Iterable, Sequence
from typing import Protocol

import tokenizers

from .pieces import Pieces


class Detokenizer(Protocol):
    """One answer's way from ids to text."""

    def push(self, ids: Sequence[int]) -> str:
        """The text that these ids complete."""

    def finish(self) -> str:
        """What was held back; an incomplete character becomes U+FFFD."""


class ByteDetokenizer:
    """For vocabularies whose tokens are bytes: the text is the UTF-8 of all their bytes.

    Bytes that are no UTF-8 become U+FFFD, one for each ill-formed piece (Unicode 15, section 3.9, U+FFFD
    substitution of maximal subparts). Ids in `hidden`, and ids without an entry, print nothing.
    """

    __slots__ = ("_begun", "_hidden", "_lead", "_pieces", "_utf8")

    def __init__(self, pieces: Pieces, hidden: frozenset[int]) -> None:
        self._pieces = pieces
        self._hidden = hidden
        self._lead = pieces.recipe.lead
        self._begun = False
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Sequence[int]) -> str:
        return self._trimmed(self._utf8.decode(b"".join(self._bytes(ids))))

    def finish(self) -> str:
        return self._trimmed(self._utf8.decode(b"", final=True))

    def _bytes(self, ids: Sequence[int]) -> Iterable[bytes]:
        for id in ids:
            if id in self._hidden:
                continue
            yield self._pieces[id] if self._begun else self._pieces.first(id)
            self._begun = True

    def _trimmed(self, text: str) -> str:
        while self._lead and text:
            if text[0] != " ":
                self._lead = 0
                break
            text, self._lead = text[1:], self._lead - 1
        return text


class WholeDetokenizer:
    """For any other decoder: decodes the whole answer again and shows what its beginning has become sure of.

    Costs more with every token, but assumes nothing of the decoder except that it does not change what it said.
    """

    __slots__ = ("_hidden", "_ids", "_shown", "_tokenizer")

    def __init__(self, tokenizer: tokenizers.Tokenizer, hidden: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._hidden = hidden
        self._ids: list[int] = []
        self._shown = ""

    def push(self, ids: Sequence[int]) -> str:
        self._ids += [id for id in ids if id not in self._hidden]
        return self._more(self._decoded().rstrip("�"))

    def finish(self) -> str:
        return self._more(self._decoded())

    def _decoded(self) -> str:
        return self._tokenizer.decode(self._ids, skip_special_tokens=False)

    def _more(self, text: str) -> str:
        if len(text) <= len(self._shown):
            return ""
        more, self._shown = text[len(self._shown) :], text
        return more
