"""Grammars: what they let a model write, what they do not, and that what they demand is read as calls."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llguidance
import pytest
from soloist.tokenizer.grammar import GrammarError
from soloist.tokenizer.tokenizer import Tokenizer
from tiny_models import CHATML, CONTROL, MARKERS

Folders = Callable[..., Path]
ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "r": {"$ref": "#/$defs/r"}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"r": {"enum": ["x", "y"]}},
}
TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": ADD}},
    {"type": "function", "function": {"name": "now"}},
]
NAMED = {"type": "function", "function": {"name": "add"}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "r": "x"}}\n</tool_call>'
NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {
    "type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"],
    "additionalProperties": False}}}  # fmt: skip
OPENED = [CONTROL["<think>"], 10]


def accepts(tokenizer: Tokenizer, text: str, **demands: Any) -> bool:
    """Whether the text is a whole answer under the grammar of these demands."""
    grammar = tokenizer.grammar(**demands)
    assert grammar is not None
    ids = tokenizer.encode(text, specials=True)
    matcher = llguidance.LLMatcher(tokenizer.grammar_vocabulary(320), grammar)
    return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


@pytest.mark.parametrize(
    "demands",
    [
        {},
        {"tools": TOOLS},
        {"tools": TOOLS, "tool_choice": "auto"},
        {"tools": TOOLS, "tool_choice": "none"},
        {"response_format": {"type": "text"}},
    ],
)
def test_an_answer_without_demands_is_free(chatml: Tokenizer, demands: dict[str, Any]) -> None:
    assert chatml.grammar(**demands) is None


@pytest.mark.parametrize(
    ("text", "required", "named"),
    [
        (CALL, True, True),
        (NOW, True, False),
        (f"{CALL}\n{CALL}", True, True),
        (f"<think>\nIf I {CALL}\n</think>\n\n{CALL}", True, True),
        ("Sure.", False, False),
        (CALL.replace('"x"', '"z"'), False, False),
        (CALL[:-1], False, False),
        (f"{CALL} and so on", False, False),
    ],
)
def test_a_demanded_call_is_all_that_can_be_written(chatml: Tokenizer, text: str, required: bool, named: bool) -> None:
    assert accepts(chatml, text, tools=TOOLS, tool_choice="required") == required
    assert accepts(chatml, text, tools=TOOLS, tool_choice=NAMED) == named


def test_one_call_at_a_time_where_asked(chatml: Tokenizer) -> None:
    assert not accepts(chatml, f"{CALL}\n{CALL}", tools=TOOLS, tool_choice="required", parallel=False)


def test_reasoning_that_the_prompt_opened_comes_first(chatml: Tokenizer) -> None:
    demands = {"tools": TOOLS, "tool_choice": "required", "prompt_ids": OPENED}
    assert accepts(chatml, f"so</think>\n\n{CALL}", **demands)
    assert not accepts(chatml, CALL, **demands)


@pytest.mark.parametrize(
    ("text", "format", "allowed"),
    [
        ('{"a": [1,\n  2]}', {"type": "json_object"}, True),
        ("[1]", {"type": "json_object"}, False),
        ('{"a":' + " " * 40 + "1}", {"type": "json_object"}, False),
        ('{"x": "é"}', SCHEMA, True),
        ('{"x": 1}', SCHEMA, False),
    ],
)
def test_an_answer_follows_its_response_format(chatml: Tokenizer, text: str, format: Any, allowed: bool) -> None:
    assert accepts(chatml, text, response_format=format) == allowed
    assert accepts(chatml, NOW, response_format=format, tools=TOOLS)
    assert not accepts(chatml, NOW, response_format=format)


@pytest.mark.parametrize(
    ("template", "pieces", "text"),
    [
        ("[TOOL_CALLS]", ["[TOOL_CALLS]"], '[TOOL_CALLS][{"name": "add", "arguments": {"a": 2}}]'),
        ("<|tool_calls_section_begin|>", [], '{"name": "add", "arguments": {"a": 2}}'),
    ],
)
def test_what_is_demanded_is_read_as_a_call(byte_folder: Folders, template: str, pieces: list[str], text: str) -> None:
    tokenizer = Tokenizer.load(byte_folder(pieces, template=CHATML + template))
    assert accepts(tokenizer, text, tools=TOOLS, tool_choice="required")
    output = tokenizer.output(chat=True, tools=TOOLS)
    deltas = [*output.push(tokenizer.encode(text, specials=True)).tool_calls, *output.finish().tool_calls]
    assert [(d.index, d.name) for d in deltas] == [(0, "add"), (0, None)]
    assert json.loads(deltas[1].arguments) == {"a": 2}


@pytest.mark.parametrize(
    ("demands", "param"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 5}}}}, "response_format"),
        ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "nope"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tool_choice": "required", "tools": [{"function": {"name": "f", "parameters": {"$ref": "#/nope"}}}]},
            "tools",
        ),
    ],
)
def test_a_demand_that_cannot_be_met_is_named(chatml: Tokenizer, demands: dict[str, Any], param: str) -> None:
    with pytest.raises(GrammarError) as refused:
        chatml.grammar(**demands)
    assert refused.value.param == param


def test_markers_are_text_to_a_grammar_only_where_they_are_no_special_tokens(chatml: Tokenizer) -> None:
    assert chatml.grammar_vocabulary(320) is chatml.grammar_vocabulary(320)
    special = [name for name, id in CONTROL.items() if chatml.grammar_vocabulary(320).is_special_token(id)]
    assert not set(special) & set(MARKERS)
    assert "<|im_end|>" in special
