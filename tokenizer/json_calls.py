"""The last resort: a JSON call to a declared tool in plain text, from a model that uses no markup for it.

Text is held back only while it may still become such a call: from an opening brace whose first key is one that calls
begin with, to where the value ends.
"""

import json
from typing import Any

import regex  # type: ignore[import-untyped]  # its partial matches tell what may still become a call

_BEGINNING = regex.compile(
    r"""(?:```\w*[ \t]*\n\s*)?(?:\[\s*)?\{\s*"(?:name|function|type|id|arguments|parameters)"\s*:"""
)
_FENCE = regex.compile(r"\s*```")
_SLACK = 8  # a number or `false` may be cut in the middle


class Found:
    """A JSON value in text[start:end] that begins as calls do; end is None while it is not complete."""

    __slots__ = ("end", "fenced", "start", "value")

    def __init__(self, start: int, end: int | None = None, value: Any = None, fenced: bool = False) -> None:
        self.start, self.end, self.value, self.fenced = start, end, value, fenced


def find(text: str) -> Found | None:
    """The first value that is or may become a call."""
    at = 0
    while match := _BEGINNING.search(text, at, partial=True):
        if match.partial:
            return Found(match.start())
        bracket = match.start() + min(i for c in "[{" if (i := match.group().find(c)) >= 0)
        try:
            value, end = json.JSONDecoder().raw_decode(text, bracket)
        except json.JSONDecodeError as error:
            if error.msg.startswith("Unterminated") or error.pos >= len(text.rstrip()) - _SLACK:
                return Found(match.start())
            at = match.end()
            continue
        except (ValueError, RecursionError):  # a number of thousands of digits, a thousand brackets
            at = match.end()
            continue
        return Found(match.start(), end, value, text[match.start()] == "`")
    return None


def after_fence(text: str) -> int | None:
    """Where the text goes on behind a closing fence; None while that cannot be told."""
    match = _FENCE.match(text, partial=True)
    if match is None:
        return 0
    return None if match.partial else match.end()
