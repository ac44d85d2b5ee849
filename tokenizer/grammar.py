"""What an answer must look like, as a grammar for llguidance: response formats, and tool choices that demand a call.

Only text is made here; masks are applied where the model runs. Reasoning stays free: the grammar begins after it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import TokenizerError
from .reasoning import Marks
from .tool_formats import ToolFormat

# White space is bounded: a weak model left free to indent may never stop doing so.
_LOOSE = {"whitespace_pattern": r"[ \n\t]{0,24}"}
_TIGHT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_MOST_CALLS = 16


class GrammarError(TokenizerError):
    """A schema or choice that cannot be enforced. Answered with 400; param names the field."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


@dataclass(frozen=True, slots=True)
class Writing:
    """How the model writes: its call format, its reasoning marks, whether the prompt opened the reasoning, and the
    ids of those marks that are special tokens and so no text. format is None for models that write on channels.
    reasons: the model knows the marks, so that it may reason before it answers."""

    format: ToolFormat | None
    marks: Marks
    opened: bool
    special: Mapping[str, int]
    reasons: bool = True


def grammar(
    writing: Writing,
    *,
    response_format: dict[str, Any] | None = None,
    tool_choice: Any = None,
    tools: list[dict[str, Any]] | None = None,
    parallel: bool = True,
) -> str | None:
    """The grammar in Lark, llguidance's dialect; None when the answer is free.

    response_format, tool_choice and tools are OpenAI's. Raises GrammarError naming the field at fault.
    """
    rules: dict[str, str] = {}
    schema = _answer_schema(response_format)
    asked = _asked(tool_choice, tools or [])
    bodies = []
    format = writing.format
    if format is None:
        if schema is None and not asked.must:
            return None
        raise GrammarError(
            "this model's answers cannot be held to a grammar", "tool_choice" if asked.must else "response_format"
        )
    if schema is not None and not asked.must:
        rules["answer"] = f"%json {_json(schema, _LOOSE)}"
        bodies.append("answer")
    if asked.must or (bodies and asked.tools):
        rules |= _call_rules(asked.tools)
        bodies.append(_block(format, writing, parallel))
    if not bodies:
        return None
    start = f"{_reasoning(writing, rules)}({' | '.join(bodies)})"
    return "\n".join([f"start: {start}", *(f"{name}: {rule}" for name, rule in rules.items())])


@dataclass(frozen=True, slots=True)
class _Asked:
    """The tools that may be called, and whether one must be."""

    tools: list[dict[str, Any]]
    must: bool


def _asked(choice: Any, tools: list[dict[str, Any]]) -> _Asked:
    functions = [tool["function"] for tool in tools]
    if choice in (None, "auto", "none"):
        return _Asked([] if choice == "none" else functions, must=False)
    if choice == "required":
        named = functions
    elif isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        named = [f for f in functions if f.get("name") == choice["function"].get("name")]
    else:
        raise GrammarError("tool_choice must be none, auto, required or a named function", "tool_choice")
    if not named:
        raise GrammarError("tool_choice asks for a tool that tools does not declare", "tool_choice")
    return _Asked(named, must=True)


def _answer_schema(response_format: dict[str, Any] | None) -> dict[str, Any] | None:
    kind = (response_format or {}).get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    inner = (response_format or {}).get("json_schema")
    if kind != "json_schema" or not isinstance(inner, dict) or not isinstance(inner.get("schema"), dict):
        raise GrammarError("response_format must be text, json_object, or json_schema with a schema", "response_format")
    schema: dict[str, Any] = inner["schema"]
    return schema


def _json(schema: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    return json.dumps({**schema, "x-guidance": options})


def _call_rules(functions: list[dict[str, Any]]) -> dict[str, str]:
    """One rule a tool: its arguments are a document of their own, so that references in a schema keep their root."""
    rules = {"call": " | ".join(f"call_{i}" for i in range(len(functions)))}
    for i, function in enumerate(functions):
        head = f'{{"name": {json.dumps(function["name"], ensure_ascii=False)}, "arguments": '
        rules[f"call_{i}"] = f'{_literal(head)} arguments_{i} "}}"'
        schema = function.get("parameters")
        rules[f"arguments_{i}"] = f"%json {_json({'type': 'object', **(schema or {})}, _TIGHT)}"
    return rules


def _block(format: ToolFormat, writing: Writing, parallel: bool) -> str:
    """The calls as the model's format encloses them; formats that are no JSON get a plain JSON call instead."""
    if format.name == "mistral":
        return f'{_mark(format.start, writing)} "[" {_several("call", ", ", parallel)} "]"'
    if format.start == "<tool_call>":
        block = f'{_mark(format.start, writing)} "\\n" call "\\n" {_mark(format.end, writing)}'
        return _several(block, "\n", parallel)
    return f'call | "[" {_several("call", ", ", parallel)} "]"'


def _several(item: str, between: str, parallel: bool) -> str:
    return f"{item} ({_literal(between)} {item}){{0,{_MOST_CALLS - 1}}}" if parallel else item


def _reasoning(writing: Writing, rules: dict[str, str]) -> str:
    """Reasoning before what is demanded: must be closed where the prompt opened it, may be written elsewhere."""
    if not (writing.opened or writing.reasons):
        return ""
    marks = writing.marks
    if marks.end in writing.special:
        rules["thought"] = f"/(?s:.*)/ {_mark(marks.end, writing)} SPACE"
    else:
        rules["thought"] = "reasoned SPACE"
        rules[f"reasoned[suffix={_literal(marks.end)}]"] = "/(?s:.*)/"
    rules["SPACE"] = r"/[ \n\t]{0,4}/"
    return "thought " if writing.opened else f"({_mark(marks.start, writing)} thought)? "


def _mark(text: str, writing: Writing) -> str:
    """A special token by its id, any other mark by its text."""
    return f"<[{writing.special[text]}]>" if text in writing.special else _literal(text)


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
