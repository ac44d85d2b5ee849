"""Tool calls in every format that the library knows, whole and malformed, in any split."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from soloist.tokenizer import tool_formats
from soloist.tokenizer.calls import CallReader
from soloist.tokenizer.chat_text import ChatText
from soloist.tokenizer.harmony import HarmonyText
from soloist.tokenizer.output import Parts
from soloist.tokenizer.reasoning import Marks

THINK = Marks("<think>", "</think>")
INTEGER = {"type": "integer"}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


TOOLS = [tool("add", a=INTEGER, b=INTEGER), tool("say", text={"type": "string"})]
ADD, SAY = ("add", {"a": 2, "b": 3}), ("say", {"text": 'é "<b>"'})
SAID = json.dumps(SAY[1], ensure_ascii=False)
PLUS = '{"a": 2, "b": 3}'
XML = "<function={0}>\n{1}</function>"
PARAMETER = "<parameter={}>\n{}\n</parameter>\n"
GLM = "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n"
DEEP = "<｜tool▁call▁begin｜>{}<｜tool▁call▁end｜>"
K2 = "<|tool_call_begin|>functions.{}:{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
K3 = '<|open|>call tool="{}" index="1"<|sep|>{}<|close|>call<|sep|>'
K3_ARGUMENT = '<|open|>argument key="{}" type="{}"<|sep|>{}<|close|>argument<|sep|>'

# format, what the model writes, the calls it means
NATIVE = [
    ("json_tools", '<tool_call>\n{"name": "add", "arguments": ' + PLUS + "}\n</tool_call>", [ADD]),
    (
        "json_tools",
        f'<tool_call>{{"name": "add", "arguments": {PLUS}}}</tool_call>\n'
        f'<tool_call>{{"name": "say", "arguments": {SAID}}}</tool_call>',
        [ADD, SAY],
    ),
    ("json_tools", '<tool_call>{"name": "say", "arguments": {"text": "a </tool_call> b"}}</tool_call>',
     [("say", {"text": "a </tool_call> b"})]),
    ("json_tools", f'<tool_call>{{"name": "add", "arguments": {json.dumps(PLUS)}}}</tool_call>', [ADD]),
    ("qwen3_coder", "<tool_call>\n" + XML.format("add", PARAMETER.format("a", 2) + PARAMETER.format("b", 3))
     + "\n</tool_call>", [ADD]),
    ("qwen3_coder", "<tool_call>\n" + XML.format("say", PARAMETER.format("text", 'é "<b>"')) + "\n</tool_call>",
     [SAY]),
    ("glm47", "<tool_call>add\n" + GLM.format("a", 2) + GLM.format("b", 3) + "</tool_call>", [ADD]),
    ("glm47", "<tool_call>say" + GLM.format("text", 'é "<b>"') + "</tool_call>", [SAY]),
    ("laguna", "<tool_call>say" + GLM.format("text", "2") + "</tool_call>", [("say", {"text": "2"})]),
    ("mistral", f'[TOOL_CALLS] [{{"name": "add", "arguments": {PLUS}}}, {{"name": "say", "arguments": {SAID}}}]',
     [ADD, SAY]),
    ("mistral", f"[TOOL_CALLS]add[ARGS]{PLUS}[TOOL_CALLS]say[ARGS]{SAID}", [ADD, SAY]),
    ("minimax_m2", '<minimax:tool_call>\n<invoke name="add">\n<parameter name="a">2</parameter>\n'
     '<parameter name="b">3</parameter>\n</invoke>\n'
     '<invoke name="say"><parameter name="text">é "<b>"</parameter></invoke>\n</minimax:tool_call>', [ADD, SAY]),
    ("kimi_k2", "<|tool_calls_section_begin|>" + K2.format("add", 0, PLUS) + K2.format("say", 1, SAID)
     + "<|tool_calls_section_end|>", [ADD, SAY]),
    ("kimi_k3", "<|open|>tools<|sep|>" + K3.format("add", K3_ARGUMENT.format("a", "number", 2)
     + K3_ARGUMENT.format("b", "number", 3)) + "<|close|>tools<|sep|>", [ADD]),
    ("gemma4", "<|tool_call>call:add{a:2,b:3}<tool_call|>", [ADD]),
    ("gemma4", '<|tool_call>call:say{text:<|"|>é "<b>"<|"|>}<tool_call|>', [SAY]),
    ("function_gemma", "<start_function_call>call:add{a:2,b:3}<end_function_call>", [ADD]),
    ("function_gemma", '<start_function_call>call:say{text:<escape>é "<b>"<escape>}<end_function_call>', [SAY]),
    ("longcat", '<longcat_tool_call>{"name": "add", "arguments": ' + PLUS + "}</longcat_tool_call>", [ADD]),
    ("pythonic", "<|tool_call_start|>[add(a=2, b=3), say(text='é \"<b>\"')]<|tool_call_end|>", [ADD, SAY]),
    ("minicpm5", '<function name="add"><param name="a">2</param><param name="b">3</param></function>', [ADD]),
    ("muse_spark", '<atem:function_calls><atem:invoke name="add"><atem:parameter name="a">2</atem:parameter>'
     '<atem:parameter name="b">3</atem:parameter></atem:invoke></atem:function_calls>', [ADD]),
    ("deepseek", "<｜tool▁calls▁begin｜>" + DEEP.format(f"function<｜tool▁sep｜>add\n```json\n{PLUS}\n```")
     + DEEP.format(f"say<｜tool▁sep｜>{SAID}") + "<｜tool▁calls▁end｜>", [ADD, SAY]),
]  # fmt: skip
PLAIN = [
    (f'{{"name": "add", "arguments": {PLUS}}}', "", [ADD]),
    (f'{{"name": "add", "parameters": {PLUS}}}', "", [ADD]),
    (f'Sure.\n```json\n{{"name": "add", "arguments": {PLUS}}}\n```\nDone.', "Sure.\n\nDone.", [ADD]),
    (f'[{{"name": "add", "arguments": {PLUS}}}, {{"name": "say", "arguments": {SAID}}}]', "", [ADD, SAY]),
    (f'{{"type": "function", "function": {{"name": "add", "arguments": {PLUS}}}}}', "", [ADD]),
]
NO_CALLS = [
    '<tool_call>{"name": "add", "arguments": {"a": 2,, oops</tool_call>',
    '<tool_call>{"name": "add", "arguments": {"a": 2',
    "<tool_call>\n<function=add>\n<parameter=a>\n2",
    "<tool_call>nonsense</tool_call> and more",
    "<tool_call>[1, 2]</tool_call>",
    '<tool_call>{"name": "add", "arguments": {"a": "</tool_call> and so on',
    'A tag is written <tool_call>.',
    '{"name": "unknown", "arguments": {}}',
    '{"name": "Alice", "age": 5}',
    '{"name": "add", "arguments": {"a": 2,, oops}} and more',
    '{"name": "add", "arguments": {"a": 2',
    "An array [1, 2] and {braces}, ``` and `code`.",
    "```json\n{\"key\": 1}\n```",
    "  leading space",
    "\n\n",
]  # fmt: skip


def chat(format: str = "json_tools", tools: list[dict[str, Any]] = TOOLS, opened: bool = False) -> ChatText:
    return ChatText(THINK, opened=opened, reader=CallReader(tool_formats.load(format), tools))


def read(parts: Parts, pieces: Sequence[str]) -> tuple[str, str, list[tuple[str, Any]]]:
    for piece in pieces:
        parts.push(piece)
    parts.finish()
    return parts.reasoning, parts.content, [(call.name, json.loads(call.arguments)) for call in parts.calls]


def cut(data: st.DataObject, text: str) -> list[str]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def test_every_format_of_the_library_is_covered() -> None:
    assert {format for format, _, _ in NATIVE} == set(tool_formats.names())


@pytest.mark.parametrize(("format", "text", "calls"), NATIVE)
def test_a_native_call_is_read(format: str, text: str, calls: list[Any]) -> None:
    assert read(chat(format), [text]) == ("", "", calls)
    assert read(chat(format), list(text)) == ("", "", calls)
    assert read(chat(format), [f"Let me see.{text}"]) == ("", "Let me see.", calls)


@given(st.data(), st.sampled_from(NATIVE))
def test_any_split_of_native_calls_gives_the_same_message(
    data: st.DataObject, case: tuple[str, str, list[Any]]
) -> None:
    format, text, calls = case
    written = f"<think>\nI could write {text} here.\n</think>\n\nWell:{text}"
    expected = (f"I could write {text} here.", "Well:", calls)
    assert read(chat(format), cut(data, written)) == expected


@pytest.mark.parametrize(("text", "content", "calls"), PLAIN)
def test_a_json_call_to_a_declared_tool_is_found_in_text(text: str, content: str, calls: list[Any]) -> None:
    assert read(chat(), [text]) == ("", content, calls)
    assert read(chat(), list(text)) == ("", content, calls)


@pytest.mark.parametrize("text", NO_CALLS)
def test_what_is_no_call_comes_back_as_it_was_written(text: str) -> None:
    assert read(chat(), [text]) == ("", text, [])
    assert read(chat(), list(text)) == ("", text, [])


@given(st.data(), st.sampled_from([*NO_CALLS, *(text for text, _, _ in PLAIN)]), st.sampled_from(NO_CALLS))
def test_any_split_of_other_text_gives_the_same_message(data: st.DataObject, first: str, second: str) -> None:
    assert read(chat(), cut(data, first + second)) == read(chat(), [first + second])


@pytest.mark.parametrize(("format", "text", "calls"), NATIVE)
def test_a_truncated_call_is_never_presented_as_whole(format: str, text: str, calls: list[Any]) -> None:
    for length in range(1, len(text)):
        _, content, found = read(chat(format), [text[:length]])
        assert found == calls[: len(found)]
        assert content or found or not text[:length].strip()


def test_a_call_that_lacks_only_its_end_marker_counts() -> None:
    assert read(chat(), ['<tool_call>\n{"name": "add", "arguments": ' + PLUS + "}\n"])[2] == [ADD]


def test_a_good_call_after_a_broken_one_is_found() -> None:
    broken = '<tool_call>{"name": "add", "arguments": {"a": "2</tool_call>'
    _, content, calls = read(chat(), [broken, f'<tool_call>{{"name": "add", "arguments": {PLUS}}}</tool_call>'])
    assert (content, calls) == (broken, [ADD])


def test_without_tools_markup_is_text() -> None:
    text = NATIVE[0][1]
    assert read(ChatText(THINK, opened=False, reader=None), list(text)) == ("", text, [])


TYPED = tool("f", zip={"type": "string"}, n=INTEGER, d=INTEGER, o={"type": "object"}, s={"type": ["string", "null"]},
             r={"$ref": "#/$defs/r"}, e={"enum": [1, 2]}, x={"anyOf": [INTEGER, {"type": "null"}]},
             y={"type": "boolean"})  # fmt: skip
TYPED["function"]["parameters"]["$defs"] = {"r": {"type": "array"}}
VALUES = {"zip": "02134", "n": "5.0", "d": "2026-01-15", "o": '{"k": 1}', "s": "null", "r": "[1]", "e": "2", "x": "7",
          "y": "True", "extra": "007"}  # fmt: skip
WANTED = {"zip": "02134", "n": 5, "d": "2026-01-15", "o": {"k": 1}, "s": None, "r": [1], "e": 2, "x": 7, "y": True,
          "extra": "007"}  # fmt: skip


@pytest.mark.parametrize("name", ["f", "undeclared"])
@pytest.mark.parametrize("format", ["qwen3_coder", "minimax_m2"])
def test_argument_types_follow_the_schema(format: str, name: str) -> None:
    if format == "qwen3_coder":
        body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in VALUES.items())
        text = f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"
    else:
        body = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in VALUES.items())
        text = f'<minimax:tool_call>\n<invoke name="{name}">\n{body}</invoke>\n</minimax:tool_call>'
    wanted = WANTED if name == "f" else VALUES | {"s": None}
    assert read(chat(format, [TYPED]), [text])[2] == [(name, wanted)]


def test_glm_values_follow_the_schema() -> None:
    text = "<tool_call>f\n" + "".join(GLM.format(key, value) for key, value in VALUES.items()) + "</tool_call>"
    assert read(chat("glm47", [TYPED]), [text])[2] == [("f", WANTED)]


FRAGMENTS = [
    *(
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "[TOOL_CALLS]",
        "add[ARGS]",
        "<function=add>",
        "</function>",
    ),
    *("<parameter=a>", "</parameter>", "<arg_key>a</arg_key>", "<arg_value>", "</arg_value>", "```json\n", "```", "\n"),
    *(
        '{"name": "add", "arguments": ',
        "{",
        "}",
        "[",
        "]",
        '"',
        "\\",
        "9" * 5000,
        "[" * 2000,
        "NaN",
        '"\\ud800"',
        "add",
    ),
    *(
        "call:add{",
        "<start_function_call>",
        "<end_function_call>",
        "<|tool_call_start|>",
        "<|tool_call_end|>",
        "(a=",
        ")",
    ),
    *(
        "<minimax:tool_call>",
        "</minimax:tool_call>",
        '<invoke name="add">',
        "</invoke>",
        '<parameter name="a">',
        "text",
    ),
]


@given(st.data(), st.sampled_from(sorted({format for format, _, _ in NATIVE})), st.lists(st.sampled_from(FRAGMENTS)))
def test_nothing_that_a_model_writes_raises_or_depends_on_the_split(
    data: st.DataObject, format: str, fragments: list[str]
) -> None:
    text = "".join(fragments)
    reasoning, content, calls = read(chat(format), [text])
    assert (reasoning, content, calls) == read(chat(format), cut(data, text))
    assert reasoning or content or calls or not text.replace("<think>", "").replace("</think>", "").strip()


@pytest.mark.parametrize(
    "arguments", ['{"a": NaN}', '{"a": ' + "9" * 5000 + "}", '{"a": ' + "[" * 5000 + "]" * 5000 + "}"]
)
def test_arguments_that_no_client_could_read_come_back_as_text(arguments: str) -> None:
    text = f'<tool_call>{{"name": "add", "arguments": {arguments}}}</tool_call>'
    assert read(chat(), [text]) == ("", text, [])


def test_half_a_character_in_arguments_stays_escaped() -> None:
    parts = chat()
    read(parts, [r'<tool_call>{"name": "say", "arguments": {"text": "é\ud800"}}</tool_call>'])
    assert parts.calls[0].arguments == r'{"text": "\u00e9\ud800"}'


def test_ids_are_unique_and_a_models_own_id_is_kept_once() -> None:
    parts = chat("mistral")
    read(parts, ['[TOOL_CALLS][{"name": "add", "arguments": {}, "id": "abcdefghi"}, {"name": "add", "arguments": {},'
                 ' "id": "abcdefghi"}, {"name": "add", "arguments": {}}]'])  # fmt: skip
    ids = [call.id for call in parts.calls]
    assert ids[0] == "abcdefghi"
    assert len(set(ids)) == 3
    assert all(len(id) == 9 and id.isalnum() for id in ids)


HARMONY = (
    "<|channel|>analysis<|message|>Think of to=functions.add<|end|>"
    "<|start|>assistant<|channel|>commentary<|message|>I will add.<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>" + PLUS + "<|call|>"
    "<|start|>assistant to=functions.say<|channel|>commentary<|message|>" + SAID
)


@given(st.data())
def test_harmony_channels_are_told_apart_in_any_split(data: st.DataObject) -> None:
    parts = HarmonyText(CallReader(tool_formats.load("json_tools"), TOOLS))
    assert read(parts, cut(data, HARMONY)) == ("Think of to=functions.add", "I will add.", [ADD, SAY])


@pytest.mark.parametrize("text", ["Just text.", "<|channel|>final<|message|>Just text."])
def test_harmony_without_calls_is_content(text: str) -> None:
    assert read(HarmonyText(None), list(text)) == ("", "Just text.", [])


def test_a_truncated_harmony_call_is_text() -> None:
    parts = HarmonyText(CallReader(tool_formats.load("json_tools"), TOOLS))
    assert read(parts, ['<|channel|>commentary to=functions.add<|message|>{"a": 2']) == ("", '{"a": 2', [])


@pytest.mark.parametrize(
    ("template", "added", "format"),
    [
        ("{{ '<tool_call>' }}{{ tool_call.name }}", [], "json_tools"),
        ("<tool_call>\n<function=name>", [], "qwen3_coder"),
        (r"'<tool_call>\n<function=' + name", [], "qwen3_coder"),
        ("<arg_key>", [], "glm47"),
        ("[TOOL_CALLS]", [], "mistral"),
        ("", ["<|tool_call_start|>", "<|tool_call_end|>"], "pythonic"),
        ("", ["<｜tool▁calls▁begin｜>"], "deepseek"),
        ("nothing", [], "json_tools"),
    ],
)
def test_the_format_is_read_off_the_template(template: str, added: list[str], format: str) -> None:
    assert tool_formats.detect([template], added) == format
