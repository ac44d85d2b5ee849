"""Templates: what they may use, and that nothing they do is a server fault."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from soloist.tokenizer import template as template_module
from soloist.tokenizer.errors import TemplateError
from soloist.tokenizer.template import Template
from soloist.tokenizer.tokenizer import Tokenizer
from tiny_models import BOS, CHATML

Folders = Callable[..., Path]
RICH = (
    "{%- set ns = namespace(count=0) -%}\n{% if tools is none %}\nno tools\n{% endif %}\n"
    "{{ {'text': 'é <b>&\\'', 'n': [1, 2]} | tojson(indent=2) }}\n"
    "{% for m in messages[1:] %}\n    {% set ns.count = ns.count + 1 %}\n"
    "    {%- if loop.index0 > 2 %}{% break %}{% endif %}\n"
    "<|im_start|>{{ m['role'] }}\n{% generation %}{{ m['content'] | tojson }}{% endgeneration %}<|im_end|>\n"
    "{% endfor %}{{ ns.count }}\n{{ eos_token }}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def user(*contents: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content} for content in contents]


def rendered(source: str, **variables: Any) -> str:
    return Template(source).render({"messages": user("hi"), "tools": None} | variables)


def test_chatml_is_one_id_for_each_character_and_control_token(chatml: Tokenizer) -> None:
    assert len(chatml.render(user("hi"), None, {})) == 21
    assert chatml.render(user("hi"), None, {}, add_generation_prompt=False)[-2:] == [260, 10]


def test_a_template_renders_as_transformers_renders_it(byte_folder: Folders) -> None:
    transformers = pytest.importorskip("transformers")
    folder = byte_folder(template=RICH)
    chat = user("hi", "é <x>", "two", "three", "four", "five")
    reference = transformers.AutoTokenizer.from_pretrained(folder)
    text = reference.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert Tokenizer.load(folder).render(chat, None, {}) == reference.encode(text, add_special_tokens=False)


def test_the_date_is_there() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", rendered("{{ strftime_now('%Y-%m-%d') }}"))


def test_json_is_left_readable() -> None:
    assert rendered("{{ {'a': 'é<'} | tojson }}") == '{"a": "é<"}'


def test_tools_are_none_when_there_are_none(byte_folder: Folders) -> None:
    tokenizer = Tokenizer.load(byte_folder(template="{{ tools is none }}"))
    assert bytes(tokenizer.render(user("x"), [], {})) == b"True"


def test_kwargs_reach_the_template_and_cannot_replace_the_messages(byte_folder: Folders) -> None:
    tokenizer = Tokenizer.load(byte_folder(template="{{ enable_thinking }}"))
    assert bytes(tokenizer.render(user("x"), None, {"enable_thinking": False})) == b"False"
    with pytest.raises(TemplateError) as refused:
        tokenizer.render(user("x"), None, {"messages": []})
    assert refused.value.param == "chat_template_kwargs"


def test_a_template_refuses_in_its_own_words(byte_folder: Folders) -> None:
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    with pytest.raises(TemplateError) as refused:
        Tokenizer.load(byte_folder(template=source)).render([{"role": "system", "content": "x"}], None, {})
    assert refused.value.message == "System role not supported"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ().__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[5].content }}",
        "{{ 'a' * 10000000000 }}",
        "{{ 9 ** 99999 }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{% for i in range(10000000000) %}x{% endfor %}",
        "{{ unknown_function() }}",
    ],
)
def test_a_template_that_does_harm_or_fails_is_refused(source: str) -> None:
    with pytest.raises(TemplateError):
        rendered(source)


@pytest.mark.parametrize("body", ["x", ""])
def test_a_template_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setattr(template_module, "SECONDS", 0.05)
    loops = "".join(f"{{% for {name} in range(99999) %}}" for name in "abcd")
    with pytest.raises(TemplateError, match="end"):
        rendered(loops + body + "{% endfor %}" * 4)


def test_a_template_that_is_no_jinja_refuses_chats_but_not_the_model(byte_folder: Folders) -> None:
    tokenizer = Tokenizer.load(byte_folder(template="{% if %}"))
    assert tokenizer.encode("hi") == [104, 105]
    with pytest.raises(TemplateError, match="invalid"):
        tokenizer.render(user("hi"), None, {})


def test_named_templates_serve_chats_and_tools(byte_folder: Folders) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    tokenizer = Tokenizer.load(byte_folder(template=named))
    assert bytes(tokenizer.render(user("x"), None, {})) == b"plain"
    assert bytes(tokenizer.render(user("x"), [{"type": "function"}], {})) == b"tools"


def test_a_template_may_lie_in_its_own_file_or_be_given(byte_folder: Folders) -> None:
    folder = byte_folder(template=None)
    assert not Tokenizer.load(folder).has_chat_template
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "from json"}))
    assert bytes(Tokenizer.load(folder).render(user("x"), None, {})) == b"from json"
    (folder / "chat_template.jinja").write_text(CHATML)
    assert len(Tokenizer.load(folder).render(user("hi"), None, {})) == 21
    assert bytes(Tokenizer.load(folder, "mine").render(user("x"), None, {})) == b"mine"


def test_a_model_without_a_template_refuses_chats(byte_folder: Folders) -> None:
    with pytest.raises(TemplateError, match="no chat template"):
        Tokenizer.load(byte_folder(template=None)).render(user("x"), None, {})


@pytest.mark.parametrize("source", [CHATML, "{{ bos_token }}" + CHATML])
@pytest.mark.parametrize("bos_first", [False, True])
def test_bos_is_neither_doubled_nor_missing(byte_folder: Folders, source: str, bos_first: bool) -> None:
    ids = Tokenizer.load(byte_folder(template=source, bos_first=bos_first)).render(user("hi"), None, {})
    assert ids.count(BOS) == (1 if bos_first or "bos_token" in source else 0)


def test_completions_get_bos_once_when_the_tokenizer_adds_it(byte_folder: Folders) -> None:
    tokenizer = Tokenizer.load(byte_folder(bos_first=True))
    assert tokenizer.encode("hi", specials=True) == [BOS, 104, 105]
    assert tokenizer.encode("<|bos|>hi", specials=True) == [BOS, 104, 105]
    assert tokenizer.encode("", specials=True) == [BOS]
    assert len(tokenizer.encode("<|bos|>hi")) == 1 + len("<|bos|>hi")


def test_bos_doubled_is_caught(byte_folder: Folders) -> None:
    """The mutant: the rendered text goes through the tokenizer as a bare text would."""
    tokenizer = Tokenizer.load(byte_folder(template="{{ bos_token }}" + CHATML, bos_first=True))
    ids = tokenizer._encoder.full.encode("<|bos|><|im_start|>user\n", add_special_tokens=True).ids
    assert ids.count(BOS) == 2
