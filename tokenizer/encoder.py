"""Text to ids: whole texts as the tokenizer means it, rendered chats with client text taken literally.

Runs on any thread. Encoding goes through `encode_batch_fast`, which releases the GIL (`encode` holds it: half a second
for a prompt of 100,000 tokens).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import tokenizers

from .errors import TokenizerError
from .shield import Controls, Shield
from .specification import Specification


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of rendered text between control tokens, or one of these."""

    text: str
    id: int | None = None


class Encoder:
    """One vocabulary, read three ways.

    full: control tokens' texts become their ids. literal: they are characters, at the beginning of a text.
    rest: the same after a control token, where SentencePiece vocabularies treat the first space otherwise.
    """

    __slots__ = ("_added", "_literal", "_rest", "_whole", "added_ids", "controls", "full", "prefix")

    def __init__(self, specification: Specification) -> None:
        """Raises TokenizerError when `tokenizers` refuses the specification."""
        self.full = _build(specification.full)
        self._literal = _build(specification.literal)
        self._rest = _build(specification.rest) if specification.rest is not None else self._literal
        self._whole = self._literal if specification.plain_is_literal else self.full
        self._added = {token.content: (id, token) for id, token in self.full.get_added_tokens_decoder().items()}
        self.added_ids = {text: id for text, (id, _) in self._added.items()}
        self.controls = Controls(specification.controls)
        self.prefix = specification.prefix if specification.prefix is not None else _prefix(self.full)

    def encode(self, text: str, *, specials: bool) -> list[int]:
        """Ids of a text by itself, after the prefix (BOS) that the tokenizer puts before a text.

        A prefix that the text already spells out is not doubled. Raises TokenizerError for lone surrogates.
        """
        spelled = specials and any(control in text for control in self.controls.texts)
        tokenizer = self.full if spelled else self._whole if specials else self._literal
        [ids] = _encode(tokenizer, [text])
        prefix = list(self.prefix)
        return ids if spelled and prefix and ids[: len(prefix)] == prefix else prefix + ids

    def encode_rendered(self, rendered: str, shield: Shield) -> list[int]:
        """Ids of a rendered chat whose client text carries the shield's marks: that text is literal."""
        clean = shield.clean(rendered)
        [ids] = _encode(self.full, [clean])
        if len(clean) == len(rendered) or not self._forged(ids, rendered):
            return ids
        return self._encode_runs(list(self._runs(rendered, shield)))

    def _forged(self, ids: Sequence[int], rendered: str) -> bool:
        """Whether some control id does not stem from the template's own markup, which alone has no marks inside."""
        counts = Counter(ids)
        return any(counts[self._added[text][0]] != rendered.count(text) for text in self.controls.texts)

    def _runs(self, rendered: str, shield: Shield) -> Iterable[Run]:
        own = sorted((text for text in self.controls.texts if text in rendered), key=len, reverse=True)
        pieces = re.split(f"({'|'.join(map(re.escape, own))})", rendered) if own else [rendered]
        strip_left = False
        for at, piece in enumerate(pieces):
            if at % 2:
                id, token = self._added[piece]
                strip_left = token.rstrip
                yield Run(piece, id)
                continue
            text = shield.clean(piece)
            if strip_left:
                text = text.lstrip()
            if at + 1 < len(pieces) and self._added[pieces[at + 1]][1].lstrip:
                text = text.rstrip()
            if text:
                yield Run(text)

    def _encode_runs(self, runs: Sequence[Run]) -> list[int]:
        first = runs[0].text if runs and runs[0].id is None else None
        texts = [run.text for run in runs[first is not None :] if run.id is None]
        encoded = iter(_encode(self._rest, texts))
        ids: list[int] = [] if first is None else _encode(self._literal, [first])[0]
        for run in runs[first is not None :]:
            ids += next(encoded) if run.id is None else [run.id]
        return ids


def _build(specification: Mapping[str, Any]) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(orjson.dumps(specification).decode())
    except Exception as error:  # tokenizers raises bare Exception
        raise TokenizerError(f"the tokenizer cannot be built: {error}") from error


def _encode(tokenizer: tokenizers.Tokenizer, texts: list[str]) -> list[list[int]]:
    try:
        return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    except (UnicodeEncodeError, TypeError) as error:  # a str that is no Unicode text
        raise TokenizerError("the text holds a lone surrogate, which is no character") from error


def _prefix(tokenizer: tokenizers.Tokenizer) -> tuple[int, ...]:
    """The ids that the post-processor puts before a text. What it would put after one ends the text: left out."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    whole = tokenizer.encode("a", add_special_tokens=True).ids
    for at in range(len(whole) - len(bare) + 1):
        if whole[at : at + len(bare)] == bare:
            return tuple(whole[:at])
    return ()
