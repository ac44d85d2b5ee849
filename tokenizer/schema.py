"""Arguments that a model wrote as bare text (XML-like formats), typed by the tool's JSON Schema and by nothing else.

A value whose text does not fit its declared type stays the string it is: the caller can then complain about it.
"""

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

_KINDS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def parameters_of(tools: list[dict[str, Any]], name: str) -> Mapping[str, Any] | None:
    """The `parameters` schema of a declared tool; None for a tool that is not declared."""
    for tool in tools:
        function = tool.get("function")
        if isinstance(function, dict) and function.get("name") == name:
            schema = function.get("parameters")
            return schema if isinstance(schema, dict) else {}
    return None


def typed(arguments: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments with every text read as the type that the schema declares; undeclared ones stay text."""
    properties = (schema or {}).get("properties")
    properties = properties if isinstance(properties, dict) else {}
    return {name: _typed(value, properties.get(name), schema or {}) for name, value in arguments.items()}


def _typed(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    kinds = list(_kinds(schema, root, 0))
    if value is None and kinds == ["string"]:  # a parser took the word for a null
        return "null"
    if not isinstance(value, str):
        return value
    for kind in sorted(set(kinds) - {"string"}, key=list(_READERS).index):
        read = _READERS[kind](value.strip())
        # Beside `string`, another type is meant only by text that is exactly its JSON.
        if read is not _UNFIT and ("string" not in kinds or json.dumps(read) == value):
            return read
    return value


def _kinds(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    if not isinstance(schema, dict) or depth > 8:
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for step in reference[2:].split("/"):
            target = target.get(step) if isinstance(target, dict) else None
        yield from _kinds(target, root, depth + 1)
    declared = schema.get("type")
    for kind in declared if isinstance(declared, list) else [declared]:
        if kind in _READERS or kind == "string":
            yield kind
    for choice in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(choice) or []:
            yield from _kinds(inner, root, depth + 1)
    if declared is None:
        values = [*(schema.get("enum") or []), *([schema["const"]] if "const" in schema else [])]
        yield from (_KINDS.get(type(value), "null") for value in values)


class _Unfit:
    """No value of the type."""


_UNFIT = _Unfit()


def _null(text: str) -> Any:
    return None if text.lower() in ("null", "none") else _UNFIT


def _boolean(text: str) -> Any:
    return {"true": True, "false": False}.get(text.lower(), _UNFIT)


def _number(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _UNFIT
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return _UNFIT
    return value


def _integer(text: str) -> Any:
    if re.fullmatch(r"[+-]?[0-9]{1,4000}", text):
        return int(text)
    value = _number(text)
    return int(value) if isinstance(value, float) and value.is_integer() else _UNFIT


def _container(kind: type) -> Any:
    def read(text: str) -> Any:
        for reader in (lambda t: json.loads(t, strict=False), ast.literal_eval):
            try:
                value = reader(text)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            if isinstance(value, kind):
                return value
        return _UNFIT

    return read


_READERS = {
    "null": _null,
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "array": _container(list),
    "object": _container(dict),
}
