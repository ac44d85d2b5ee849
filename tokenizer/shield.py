"""Nobody forges a turn: text of a client is marked before a template sees it, so its characters stay characters.

Around each character that control tokens are spelled with (`<`, `|`, `[` ...) a mark is put, a code point that occurs
nowhere in the request. Whatever the template does (trim, join, tojson), a control token's text that came from the
client comes out with marks inside, and only the template's own markup comes out whole. `Quoted` keeps templates that
*look* at text honest: it compares, splits and searches as the text without marks.
"""

from collections.abc import Iterable, Iterator
from typing import Any

# Noncharacters first: no text in the wild has them. A hostile text cannot hold all of the rest.
_CANDIDATES = (range(0xFDD0, 0xFDF0), range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))


class Shield:
    """Marks client text for one request. `controls`: the texts of every control token."""

    __slots__ = ("_infix", "_longest", "_sensitive", "mark")

    def __init__(self, controls: "Controls", request: Any) -> None:
        strings = list(_strings(request))
        self.mark = next(chr(c) for block in _CANDIDATES for c in block if not any(chr(c) in s for s in strings))
        self._sensitive = controls.sensitive
        self._infix = controls.infix
        self._longest = controls.longest

    def quote(self, text: str) -> str:
        """The text with marks; itself where it holds nothing that a control token is made of."""
        marked = text
        for character in self._sensitive:
            marked = marked.replace(character, f"{self.mark}{character}{self.mark}")
        if marked is text or marked == text:
            if not text or len(text) > self._longest or text.casefold() not in self._infix:
                return text
            marked = f"{text[0]}{self.mark}{text[1:]}"  # a template that writes '<' + name + '>' forges nothing either
        return Quoted.of(marked, text, self)

    def request(self, value: Any) -> Any:
        """A deep copy in which every string is quoted, keys included."""
        if isinstance(value, str):
            return self.quote(value)
        if isinstance(value, dict):
            copy = {self.quote(k) if isinstance(k, str) else k: self.request(v) for k, v in value.items()}
            return type(value)(copy)
        if isinstance(value, list | tuple):
            return [self.request(item) for item in value]
        return value

    def clean(self, text: str) -> str:
        return text.replace(self.mark, "")


class Controls:
    """The texts that mean something other than themselves to the model."""

    __slots__ = ("infix", "longest", "sensitive", "texts")

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = frozenset(texts)
        characters = {c for text in self.texts for c in text}
        self.sensitive = sorted(c for c in characters if not c.isalnum() and not c.isspace())
        self.infix = "\0".join(sorted(self.texts)).casefold()
        self.longest = max(map(len, self.texts), default=0)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(key)
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)


class Quoted(str):
    """Marked text that answers a template's questions as the text it stands for.

    Its own characters hold the marks, so whatever joins or dumps it carries them along; its methods work on the text
    without them and quote what they return.
    """

    _text: str
    _shield: Shield

    @classmethod
    def of(cls, marked: str, text: str, shield: Shield) -> "Quoted":
        self = cls(marked)
        self._text, self._shield = text, shield
        return self

    def _quoted(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._shield.quote(value)
        if isinstance(value, list | tuple):
            return type(value)(self._quoted(item) for item in value)
        return value

    def __hash__(self) -> int:
        return hash(self._text)

    def __len__(self) -> int:
        return len(self._text)

    def __iter__(self) -> Iterator[str]:
        return map(self._shield.quote, self._text)

    def __getitem__(self, key: Any) -> str:
        return self._shield.quote(self._text[key])


def _plain(value: Any) -> Any:
    return value._text if isinstance(value, Quoted) else value


def _lifted(name: str) -> Any:
    method = getattr(str, name)

    def lifted(self: Quoted, *arguments: Any, **named: Any) -> Any:
        return self._quoted(method(self._text, *map(_plain, arguments), **named))

    return lifted


for _name in (
    *("__contains__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__mul__", "__rmul__"),
    *("capitalize", "casefold", "count", "endswith", "expandtabs", "find", "index", "isalnum", "isalpha", "isascii"),
    *("isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isspace", "istitle", "isupper", "ljust"),
    *("lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust"),
    *("rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper"),
):
    setattr(Quoted, _name, _lifted(_name))
