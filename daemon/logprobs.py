"""Log-probabilities on the wire: the chat shape and the legacy shape of completions. Minus infinity never gets out."""

import math
from collections.abc import Sequence
from typing import Any

from ..executor.request import Logprobs
from ..tokenizer.tokenizer import Tokenizer

LOWEST = -9999.0  # what stands for a probability of zero in JSON, which has no infinity


def finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LOWEST


def chat_logprobs(entries: Sequence[Logprobs], tokenizer: Tokenizer) -> dict[str, Any]:
    """`{"content": [...]}`: token, logprob, raw bytes, and the alternatives, most likely first."""
    return {"content": [_entry(tokenizer, e.id, e.logprob) | {"top_logprobs": _top(e, tokenizer)} for e in entries]}


def _top(entry: Logprobs, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    return [_entry(tokenizer, token, logprob) for token, logprob in entry.top]


def _entry(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    return {
        "token": tokenizer.token_text(token),
        "logprob": finite(logprob),
        "bytes": list(tokenizer.token_bytes(token)),
    }


class LegacyLogprobs:
    """The shape of /v1/completions: parallel lists, with offsets counted in characters of the tokens so far."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._offset = 0

    def shape(self, entries: Sequence[Logprobs]) -> dict[str, Any]:
        texts = [self._tokenizer.token_text(entry.id) for entry in entries]
        offsets = []
        for text in texts:
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [finite(entry.logprob) for entry in entries],
            "top_logprobs": [self._alternatives(entry) for entry in entries],
            "text_offset": offsets,
        }

    def _alternatives(self, entry: Logprobs) -> dict[str, float]:
        """Text to log-probability; of two ids with one text the likelier stays. The sampled token is always in it."""
        shown: dict[str, float] = {}
        for token, logprob in (*entry.top, (entry.id, entry.logprob)):
            shown.setdefault(self._tokenizer.token_text(token), finite(logprob))
        return shown
