"""Answers that must have a form: masks hold any model to it, over real HTTP, and what cannot be enforced is a 400."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest
from http_server import HI, Server, serving
from soloist.tokenizer.matcher import Matcher
from tiny_models import CHATML, scripted

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
OBJECT = {"type": "json_object"}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}
ADD = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
NOW = {"type": "function", "function": {"name": "now"}}
BROKEN = {"type": "function", "function": {"name": "f", "parameters": {"type": 5}}}
NAMED = {"type": "function", "function": {"name": "add"}}
SIGNS = {'"': 0.3, "}": 0.2, ":": 0.1, "{": 0.05, "[": 0.05, "]": 0.1, ",": 0.05, "1": 0.1, "</think>": 0.05}


@pytest.fixture(scope="module")
def signs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A model that draws JSON's signs at random for ever, whose template knows tool calls."""
    folder = scripted(tmp_path_factory.mktemp("m") / "signs", dist=SIGNS, template=CHATML + "{# <tool_call> #}")
    with serving(folder) as server:
        yield server


def content(reply: Any) -> Any:
    assert reply.status == 200, reply.body
    return json.loads(reply.text)


@pytest.mark.parametrize("limit", [20, 40, 300])
def test_a_model_that_only_wants_prose_answers_in_json(stop: Server, limit: int) -> None:
    for _ in range(4):
        reply = stop.chat(response_format=OBJECT, max_tokens=limit)
        assert isinstance(content(reply), dict)
    assert set(content(stop.chat(response_format=FORMAT, max_tokens=limit))) == {"a"}
    assert stop.chat(max_tokens=20).text.startswith("alpha"), "others write what they like"


def test_a_finished_document_ends_the_answer_by_itself(signs: Server) -> None:
    finishes = set()
    for seed in range(8):
        reply = signs.chat(response_format=OBJECT, max_tokens=2000, seed=seed)
        assert isinstance(content(reply), dict)
        finishes.add(reply.choice["finish_reason"])
        usage = reply.json["usage"]
        assert (usage["completion_tokens"] < 2000) == (reply.choice["finish_reason"] == "stop")
    assert "stop" in finishes


def test_streams_and_choices_are_held_to_the_form_too(signs: Server, stop: Server) -> None:
    fields = {"response_format": FORMAT, "max_tokens": 60, "seed": 3}
    whole = signs.chat(**fields)
    assert signs.chat_events(**fields).text == whole.text
    choices = stop.chat(response_format=FORMAT, max_tokens=60, n=4).json["choices"]
    values = [json.loads(choice["message"]["content"])["a"] for choice in choices]
    assert len(values) == 4 and all(isinstance(value, int) for value in values)


def test_the_sdk_parses_what_it_asked_for(signs: Server) -> None:
    class Point(pydantic.BaseModel):
        k: list[int]
        label: str

    with openai.OpenAI(base_url=f"http://127.0.0.1:{signs.port}/v1", api_key="x", max_retries=0) as client:
        answer = client.chat.completions.parse(
            model="signs", messages=HI, response_format=Point, max_tokens=3000, seed=11
        )
    assert isinstance(answer.choices[0].message.parsed, Point)


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_a_demanded_call_is_made(signs: Server, choice: Any) -> None:
    for seed in range(4):
        fields = {"tools": [ADD, NOW], "tool_choice": choice, "parallel_tool_calls": False, "seed": seed}
        reply = signs.chat(max_tokens=400, **fields)
        assert reply.choice["finish_reason"] == "tool_calls"
        (call,) = reply.choice["message"]["tool_calls"]
        assert call["function"]["name"] in (["add", "now"] if choice == "required" else ["add"])
        if call["function"]["name"] == "add":
            assert isinstance(json.loads(call["function"]["arguments"])["a"], int)
        deltas = [d for c in signs.chat_events(max_tokens=400, **fields).of() for d in c["delta"].get("tool_calls", [])]
        assert "".join(d["function"]["arguments"] for d in deltas) == call["function"]["arguments"]


def test_a_call_that_is_cut_short_is_text_and_no_call(stop: Server) -> None:
    reply = stop.chat(tools=[ADD], tool_choice=NAMED, max_tokens=12)
    assert reply.choice["finish_reason"] == "length" and "tool_calls" not in reply.choice["message"]


def test_with_tools_a_formatted_answer_may_be_a_call(signs: Server) -> None:
    for seed in range(6):
        message = signs.chat(tools=[NOW], response_format=FORMAT, max_tokens=600, seed=seed).choice["message"]
        assert message.get("tool_calls") or isinstance(json.loads(message["content"])["a"], int)


def test_neighbours_draw_what_they_draw_alone(signs: Server) -> None:
    alone = [signs.chat(max_tokens=40, seed=seed).text for seed in range(3)]
    formatted = signs.chat(max_tokens=40, seed=9, response_format=OBJECT).text
    got: dict[int, str] = {}

    def ask(seed: int) -> None:
        fields = {"response_format": OBJECT} if seed == 9 else {}
        got[seed] = signs.chat(max_tokens=40, seed=seed, **fields).text

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in (0, 9, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[seed] for seed in range(3)] == alone and got[9] == formatted


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 5}}}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/no"}}}}, "response_format"),
        ({"response_format": {"type": "banana"}}, "response_format"),
        ({"response_format": {"type": []}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": NAMED, "tools": [NOW]}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}, "tools": [NOW]}, "tool_choice"),
        ({"tool_choice": "required", "tools": [BROKEN]}, "tools"),
    ],
)  # fmt: skip
def test_what_cannot_be_enforced_is_named(stop: Server, fields: dict[str, Any], param: str) -> None:
    reply = stop.chat(max_tokens=5, **fields)
    assert (reply.status, reply.error["param"]) == (400, param)
    stop.canary()


def test_an_unforced_choice_needs_no_grammar(stop: Server) -> None:
    for fields in ({"tool_choice": "auto"}, {"tool_choice": "none"}, {"parallel_tool_calls": False}):
        assert stop.chat(tools=[ADD], max_tokens=3, **fields).text.startswith("alpha")


def test_mutant_a_mask_that_allows_everything_is_caught(stop: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Matcher, "mask", lambda self: ~(Matcher.mask_of_nothing(self)), raising=False)
    monkeypatch.setattr(Matcher, "mask_of_nothing", _nothing, raising=False)
    reply = stop.chat(response_format=OBJECT, max_tokens=20)
    assert (reply.status, reply.error["code"]) == (503, "executor_failed"), "the matcher refuses what was drawn"
    monkeypatch.setattr(Matcher, "accept", lambda self, token: False)
    assert not stop.chat(response_format=OBJECT, max_tokens=20).text.startswith("{")
    monkeypatch.undo()
    assert isinstance(content(stop.chat(response_format=OBJECT, max_tokens=20)), dict)


def _nothing(self: Matcher) -> Any:
    import numpy as np

    return np.zeros(self._width, np.uint32)
