"""Answers whose tokens run out: they are closed in time, from wherever a careless model has brought them."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from soloist.tokenizer.grammar import GrammarError
from soloist.tokenizer.matcher import Guide, Matcher, guide
from soloist.tokenizer.tokenizer import Tokenizer

SIZE = 320


def format_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"schema": schema}}


NODE = {
    "type": "object",
    "properties": {"n": {"$ref": "#/$defs/n"}, "v": {"type": "number"}},
    "required": ["v"],
    "additionalProperties": False,
}
FORMATS = {
    "anything": {"type": "json_object"},
    "an integer": format_of({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
    "many demands": format_of({
        "type": "object", "required": ["a", "b", "c"], "additionalProperties": False,
        "properties": {"a": {"type": "integer", "minimum": 5}, "c": {"type": "string", "minLength": 3},
                       "b": {"type": "array", "items": {"enum": ["red", "blue"]}, "minItems": 2}}}),
    "itself": format_of({"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["x"],
                         "$defs": {"n": NODE}}),
}  # fmt: skip


def write(tokenizer: Tokenizer, held: Guide, limit: int, draw: random.Random) -> tuple[str, Matcher, bool]:
    """An answer drawn at random, with a liking for letters and brackets: its content, and whether it was ended."""
    matcher, ids, over = held.matcher(), [], False
    while len(ids) < limit and not over:
        words = matcher.mask()
        allowed = [id for id in range(SIZE) if words[id // 32] >> (id % 32) & 1]
        liked = [id for id in allowed if chr(id) in "[{ab"]
        token = draw.choice(liked if liked and draw.random() < 0.5 else allowed)
        if token in tokenizer.end_ids:
            break
        ids.append(token)
        over = matcher.accept(token)
    output = tokenizer.output(chat=True)
    return output.push(ids).content + output.finish().content, matcher, over


@pytest.mark.parametrize("limit", [60, 100, 400])
@pytest.mark.parametrize("name", FORMATS)
def test_an_answer_is_whole_when_its_tokens_run_out(chatml: Tokenizer, name: str, limit: int) -> None:
    for seed in range(25):
        held = guide(chatml, SIZE, limit, response_format=FORMATS[name])
        assert held is not None
        text, matcher, over = write(chatml, held, limit, random.Random(seed))
        assert over, (seed, text)
        assert isinstance(json.loads(text), dict)
        assert matcher.hurried or len(text) < limit


def test_mutant_without_closing_a_random_answer_is_cut(chatml: Tokenizer) -> None:
    held = guide(chatml, SIZE, 60, response_format=FORMATS["anything"])
    assert held is not None
    held._closing = None
    assert not all(write(chatml, held, 60, random.Random(seed))[2] for seed in range(25))


def test_what_is_too_short_to_close_is_left_as_it_is(chatml: Tokenizer) -> None:
    held = guide(chatml, SIZE, 12, response_format=FORMATS["many demands"])
    assert held is not None
    _, matcher, over = write(chatml, held, 12, random.Random(1))
    assert not over and not matcher.hurried


def test_a_copy_goes_its_own_way(chatml: Tokenizer) -> None:
    held = guide(chatml, SIZE, 1000, response_format=FORMATS["anything"])
    assert held is not None
    one = held.matcher()
    one.mask()
    one.accept(ord("{"))
    two = one.copy()
    assert (one.accept(ord("}")), two.accept(ord('"'))) == (True, False)
    with pytest.raises(RuntimeError, match="not allow"):
        two.accept(chatml.bos_id or 0)


@pytest.mark.parametrize(
    "demands", [{}, {"tools": [{"function": {"name": "f"}}]}, {"response_format": {"type": "text"}}]
)
def test_free_answers_have_no_guide(chatml: Tokenizer, demands: dict[str, Any]) -> None:
    assert guide(chatml, SIZE, 10, **demands) is None


@pytest.fixture(scope="module")
def plain(byte_folder: Callable[..., Path]) -> Tokenizer:
    """Of a model that does not reason."""
    folder = byte_folder()
    stored = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(stored.replace("think>", "other>"))
    return Tokenizer.load(folder)


def test_a_schema_that_no_answer_can_begin_is_refused_at_once(plain: Tokenizer) -> None:
    with pytest.raises(GrammarError, match="no answer"):
        guide(plain, SIZE, 10, response_format=format_of({"$ref": "#"}))


def test_calls_are_never_closed_in_a_hurry(chatml: Tokenizer) -> None:
    tools = [{"function": {"name": "f"}}]
    for demands in ({"tool_choice": "required"}, {"response_format": FORMATS["anything"]}):
        held = guide(chatml, SIZE, 20, tools=tools, **demands)
        assert held is not None and held._closing is None


def test_a_model_that_knows_no_reasoning_marks_may_not_begin_with_them(plain: Tokenizer) -> None:
    held = guide(plain, SIZE, 100, response_format=FORMATS["anything"])
    assert held is not None
    words = held.matcher().mask()
    assert [bool(words[ord(sign) // 32] >> (ord(sign) % 32) & 1) for sign in "{<"] == [True, False]
