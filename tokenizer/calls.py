"""The text of a tool-call block to calls as OpenAI writes them: a name, JSON text for arguments, an id of its own."""

import json
import re
import secrets
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import tool_formats
from .schema import parameters_of, typed
from .tool_formats import ToolFormat

# Formats whose arguments are bare text, so that only the schema tells their types.
_UNTYPED = frozenset({"qwen3_coder", "glm47", "laguna", "longcat", "minimax_m2", "minicpm5"})
# Parsers that make a call of anything: what they say is believed only about declared tools.
_LENIENT = frozenset({"glm47", "laguna", "longcat", "function_gemma", "minicpm5"})
# Parsers that raise unless the block is complete: only these are asked when the answer ends without an end marker.
_STRICT = frozenset({"json_tools", "mistral", "pythonic", "qwen3_coder"})
_NAMES = re.compile(r"<(?:longcat_)?arg_key>\s*(.*?)\s*</(?:longcat_)?arg_key>", re.DOTALL)
_OPEN = (("<parameter", "</parameter>"), ("<param ", "</param>"), ("<arg_value>", "</arg_value>"))


@dataclass(frozen=True, slots=True)
class Call:
    """arguments: JSON text of an object."""

    id: str
    name: str
    arguments: str


class CallReader:
    """Reads the blocks of one answer. tools: as the request declares them."""

    __slots__ = ("_ids", "_make_id", "_tools", "format", "names")

    def __init__(self, format: ToolFormat, tools: list[dict[str, Any]]) -> None:
        self.format = format
        self._tools = tools
        self.names = frozenset(
            f["name"] for t in tools if isinstance(f := t.get("function"), dict) and isinstance(f.get("name"), str)
        )
        self._ids: set[str] = set()
        self._make_id: Callable[[], str] = _nine if format.name == "mistral" else _ordinary

    def read(self, body: str, *, closed: bool = True) -> list[Call] | None:
        """The calls of a block; None when it is not wholly made of calls. closed: its end marker has been seen."""
        format = tool_formats.best_for(body, self.format)
        lenient = format.name in _LENIENT
        if not closed and format.name not in _STRICT:
            return None
        try:
            found = format.parse(body, self._as_text(body) if format.name in _UNTYPED else self._tools)
        except Exception:  # whatever a parser makes of a malformed block, it is not a call
            found = json_values(body)
        calls = self.accept(found, untyped=format.name in _UNTYPED)
        if calls and lenient and any(call.name not in self.names for call in calls):
            return None
        return calls

    def accept(self, found: Any, *, untyped: bool = False) -> list[Call] | None:
        """Calls of what a parser found, or None."""
        entries = found if isinstance(found, list) else [found]
        read = [_entry(entry) for entry in entries]
        calls = []
        for entry in read:
            if entry is None:
                return None
            id, name, arguments = entry
            if untyped:
                arguments = typed(arguments, parameters_of(self._tools, name))
            text = _json_text(arguments)
            if text is None:
                return None
            calls.append(Call(self._unique(id), name, text))
        return calls or None

    def _unique(self, id: str | None) -> str:
        if not id or id in self._ids:
            id = self._make_id()
        self._ids.add(id)
        return id

    def _as_text(self, body: str) -> list[dict[str, Any]]:
        """The tools with every parameter a string, so that parsers hand over the text and guess nothing."""
        named = {name: {"type": "string"} for name in _NAMES.findall(body)}
        names = {*self.names, re.split(r"<(?:longcat_)?arg_key>", body)[0].strip()}
        tools = []
        for name in names:
            declared = (parameters_of(self._tools, name) or {}).get("properties")
            properties = {key: {"type": "string"} for key in declared} if isinstance(declared, dict) else {}
            parameters = {"type": "object", "properties": {**properties, **named}}
            tools.append({"type": "function", "function": {"name": name, "parameters": parameters}})
        return tools


def _entry(entry: Any) -> tuple[str | None, str, dict[str, Any]] | None:
    """id, name and arguments of one call as models write them."""
    if not isinstance(entry, dict):
        return None
    inner = entry.get("function")
    if isinstance(inner, dict):
        entry = {**inner, "id": entry.get("id")}
    name = entry.get("name", inner if isinstance(inner, str) else None)
    arguments = entry.get("arguments", entry.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if arguments is None:
        arguments = {}
    if not isinstance(name, str) or not name.isprintable() or not name or not isinstance(arguments, dict):
        return None
    id = entry.get("id")
    return id if isinstance(id, str) else None, name, arguments


def _json_text(arguments: dict[str, Any]) -> str | None:
    """JSON that any client can read, or None: not a number, say, is none. Half characters stay escaped."""
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        return text if text.isascii() or text.encode() else None
    except UnicodeEncodeError:
        return json.dumps(arguments)
    except (ValueError, RecursionError):
        return None


def json_values(text: str) -> list[Any] | None:
    """The JSON values that a text is made of, one after the other; None when it holds anything else."""
    values, at, decoder = [], 0, json.JSONDecoder()
    text = text.strip()
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        values += value if isinstance(value, list) else [value]
        while at < len(text) and text[at] in " \t\r\n,;":
            at += 1
    return values


def is_open(body: str) -> bool:
    """Whether an end marker right after this text would stand inside a string or a parameter, and so end nothing."""
    if body.lstrip()[:1] in ("{", "["):
        return len(re.findall(r'(?<!\\)(?:\\\\)*"', body)) % 2 == 1
    return any(body.rfind(opening) > body.rfind(closing) for opening, closing in _OPEN)


def _ordinary() -> str:
    return f"call_{secrets.token_hex(12)}"


def _nine() -> str:
    """Mistral's templates insist on nine letters or digits."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))
