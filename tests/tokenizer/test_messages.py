"""Messages in every shape that clients send."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from soloist.tokenizer.errors import TemplateError
from soloist.tokenizer.tokenizer import Tokenizer

Folders = Callable[..., Path]
TURNS = "{% for m in messages %}[{{ m.role }}] {{ m['content'] }}{% for c in m.tool_calls or [] %}"
MAPPING = TURNS + "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}{% endfor %}{% endfor %}"
TEXT = TURNS + "{{ '(' + c.function.arguments + ')' }}{% endfor %}{% endfor %}"
PRINTED = TURNS + "{{ c.function.arguments }}{% endfor %}{% endfor %}"
SUM = '{"a": 2, "b": "é"}'


def call(arguments: Any, **content: Any) -> list[dict[str, Any]]:
    function = {"name": "add", "arguments": arguments}
    return [
        {"role": "user", "content": "2+3"},
        {"role": "assistant", **content, "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": "5"},
    ]


@pytest.fixture(scope="module")
def text(byte_folder: Folders) -> Callable[..., str]:
    """text(template, messages) renders with the byte vocabulary and reads the ids back."""
    loaded: dict[str, Tokenizer] = {}

    def render(source: str, messages: list[dict[str, Any]], **kwargs: Any) -> str:
        if source not in loaded:
            loaded[source] = Tokenizer.load(byte_folder(template=source))
        tokenizer = loaded[source]
        return b"".join(map(tokenizer.token_bytes, tokenizer.render(messages, None, kwargs))).decode()

    return render


@pytest.mark.parametrize("source", [MAPPING, TEXT, PRINTED])
@pytest.mark.parametrize("arguments", ["", "null", "{}", None, {}])
def test_no_arguments_are_an_empty_mapping(text: Any, source: str, arguments: Any) -> None:
    assert text(source, call(arguments)) == text(source, call("{}"))


def test_arguments_serve_templates_that_iterate_concatenate_or_print(text: Any) -> None:
    assert "a=2;b=é;" in text(MAPPING, call(SUM))
    assert f"({SUM})" in text(TEXT, call(SUM))
    assert SUM in text(PRINTED, call(SUM))


@pytest.mark.parametrize("source", [MAPPING, TEXT, PRINTED])
def test_an_object_renders_as_its_json_text(text: Any, source: str) -> None:
    assert text(source, call({"a": 2, "b": "é"})) == text(source, call(SUM))


def test_arguments_that_are_no_json_pass_as_text_or_are_named(text: Any) -> None:
    assert "({not json)" in text(TEXT, call("{not json"))
    with pytest.raises(TemplateError) as refused:
        text(MAPPING, call("{not json"))
    assert refused.value.param == "messages[1].tool_calls[0]"


def test_content_null_absent_and_empty_are_the_same(text: Any) -> None:
    texts = {
        text(MAPPING, call(SUM, **content)) for content in ({}, {"content": None}, {"content": ""}, {"content": []})
    }
    assert len(texts) == 1
    assert "None" not in texts.pop()


@pytest.mark.parametrize("role", ["system", "user", "developer"])
@pytest.mark.parametrize("content", [{}, {"content": None}])
def test_only_assistants_and_tools_may_say_nothing(text: Any, role: str, content: dict[str, Any]) -> None:
    with pytest.raises(TemplateError) as refused:
        text(PRINTED, [{"role": role, **content}])
    assert refused.value.param == "messages[0].content"


@pytest.mark.parametrize("depth", [500, 100_000])
def test_arguments_nested_without_end_are_never_a_server_fault(text: Any, depth: int) -> None:
    try:
        assert "[[[" in text(TEXT, call('{"a": ' + "[" * depth + "]" * depth + "}"))
    except TemplateError as refused:
        assert refused.param.startswith("messages")


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_parts_are_joined_without_inventing_characters(text: Any, role: str) -> None:
    parts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    assert text(TURNS + "{% endfor %}{% endfor %}", [{"role": role, "content": parts}]) == f"[{role}] AB"


@pytest.mark.parametrize("part", [{"type": "image_url"}, {"type": "text"}, {"type": "text", "text": 5}, 7])
def test_a_part_that_is_no_text_is_named(text: Any, part: Any) -> None:
    with pytest.raises(TemplateError) as refused:
        text(PRINTED, [{"role": "user", "content": [{"type": "text", "text": "A"}, part]}])
    assert refused.value.param == "messages[0].content[1]"


def test_developer_is_system_unless_the_template_knows_it(text: Any) -> None:
    chat = [{"role": "developer", "content": "x"}]
    assert text(PRINTED, chat) == "[system] x"
    assert text("{# developer #}" + PRINTED, chat) == "[developer] x"


def test_a_legacy_function_call_is_a_tool_call(text: Any) -> None:
    legacy = [{"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": SUM}}]
    assert "a=2" in text(MAPPING, legacy)


def test_a_tool_result_carries_the_name_of_its_call(text: Any) -> None:
    assert text("{{ messages[2].name }}", call(SUM)) == "add"


def test_null_fields_of_an_echoed_message_do_not_reach_the_template(text: Any) -> None:
    echoed = {
        "role": "assistant",
        "content": "x",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "tool_calls": None,
    }
    assert text("{{ messages[0] | tojson }}", [echoed]) == '{"role": "assistant", "content": "x"}'
