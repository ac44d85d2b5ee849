"""One choice from ids to deltas: stops, reasoning and calls together, streamed as whole."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from soloist.tokenizer.errors import TokenizerError
from soloist.tokenizer.output import Text
from soloist.tokenizer.tokenizer import Tokenizer
from tiny_models import CHATML, CONTROL, Vocabulary

Folders = Callable[..., Path]
INTEGER = {"type": "integer"}
PARAMETERS = {"type": "object", "properties": {"a": INTEGER, "b": INTEGER}}
ADD = [{"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}]
CALL = ["<tool_call>", '\n{"name": "add",', ' "arguments":', ' {"a": 2,', ' "b": 3}', "}\n", "</tool_call>"]
BROKEN = ["<tool_call>", '{"name": "add", ', '"arguments": {"a": 2,, ', "oops", "</tool_call>"]
THINK = ["<think>", "I could emit <tool", "_call> here", "</think>", "\n\nAnswer"]


@pytest.fixture(scope="module")
def answer(byte_folder: Folders) -> Callable[..., list[Text]]:
    """answer(pieces, ...) pushes one id for each piece and finishes."""
    pieces = [*CALL, *BROKEN, *THINK]
    tokenizer, vocabulary = Tokenizer.load(byte_folder(pieces)), Vocabulary(pieces)

    def run(written: Sequence[str], size: int = 1, **options: Any) -> list[Text]:
        output = tokenizer.output(**{"chat": True, **options})
        ids = [vocabulary.id(piece) for piece in written]
        texts = [output.push(ids[at : at + size]) for at in range(0, len(ids), size)]
        texts.append(output.finish())
        assert output.called_tools == any(text.tool_calls for text in texts)
        return texts

    return run


def joined(texts: list[Text]) -> tuple[str, str, list[tuple[int, str, Any]], str | None]:
    """The message as OpenAI's SDK puts it together."""
    calls: dict[int, list[str]] = {}
    for delta in (delta for text in texts for delta in text.tool_calls):
        if delta.index not in calls:
            assert delta.id and delta.name
            calls[delta.index] = [delta.name, ""]
        else:
            assert delta.id is None and delta.name is None
        calls[delta.index][1] += delta.arguments
    stops = {text.stop for text in texts} - {None}
    assert len(stops) <= 1
    content = "".join(text.content for text in texts)
    reasoning = "".join(text.reasoning for text in texts)
    read = [(index, name, json.loads(arguments)) for index, (name, arguments) in calls.items()]
    return content, reasoning, read, stops.pop() if stops else None


@pytest.mark.parametrize("size", [1, 3, 100])
def test_calls_are_indexed_in_order_and_leave_no_markup(answer: Any, size: int) -> None:
    arguments = {"a": 2, "b": 3}
    assert joined(answer(CALL * 2, size, tools=ADD)) == ("", "", [(0, "add", arguments), (1, "add", arguments)], None)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_broken_call_is_content(answer: Any, size: int) -> None:
    assert joined(answer(BROKEN, size, tools=ADD)) == ("".join(BROKEN), "", [], None)


def test_a_call_cut_short_is_content(answer: Any) -> None:
    assert joined(answer(CALL[:4], tools=ADD)) == ("".join(CALL[:4]), "", [], None)


@pytest.mark.parametrize("tools", [None, ADD])
def test_reasoning_is_told_from_content_and_tool_syntax_in_it_is_reasoning(answer: Any, tools: Any) -> None:
    assert joined(answer(THINK, tools=tools)) == ("Answer", "I could emit <tool_call> here", [], None)


def test_reasoning_streams_as_it_is_written(answer: Any) -> None:
    assert [text.reasoning for text in answer(THINK)][1:3] == ["I could emit <tool", "_call> here"]


def test_a_block_that_the_prompt_opened_is_reasoning(answer: Any) -> None:
    opened = [256, 105, 10, CONTROL["<think>"], 10]
    closed = [*opened, 10, CONTROL["</think>"], 10, 10]
    assert joined(answer(THINK[1:], prompt_ids=opened))[:2] == ("Answer", "I could emit <tool_call> here")
    assert joined(answer(THINK[4:], prompt_ids=closed))[:2] == ("\n\nAnswer", "")


def test_a_completion_is_not_taken_apart(answer: Any) -> None:
    assert joined(answer(THINK, chat=False))[:2] == ("".join(THINK), "")


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize(
    ("pieces", "stop", "content", "reasoning"),
    [
        (CALL, "}", "".join(CALL).split("}")[0], ""),
        (THINK, "</think>", "", "I could emit <tool_call> here"),
        (THINK, "could", "", "I "),
        (THINK, "swer", "An", ""),
        (THINK, "Answer!", "Answer", "I could emit <tool_call> here"),
    ],
)
def test_stops_are_seen_in_all_that_is_written(
    answer: Any, size: int, pieces: list[str], stop: str, content: str, reasoning: str
) -> None:
    got = joined(answer(pieces, size, stops=(stop,), tools=ADD))
    assert got == (content, reasoning or got[1], [], stop if stop != "Answer!" else None)
    assert stop not in got[0] + got[1]


def test_nothing_follows_a_stop(answer: Any) -> None:
    texts = answer([*THINK, *CALL], stops=("Answer",), tools=ADD)
    assert all(text == Text() for text in texts[5:])


def test_an_unknown_tool_parser_is_named(byte_folder: Folders) -> None:
    with pytest.raises(TokenizerError, match="unknown tool parser 'nope'; known are"):
        Tokenizer.load(byte_folder(), tool_parser="nope")


def test_reading_calls_never_imports_mlx(byte_folder: Folders) -> None:
    folder = byte_folder(template=CHATML + "<tool_call>\n<function=")
    code = (
        "import sys\nfrom pathlib import Path\nfrom soloist.tokenizer.tokenizer import Tokenizer\n"
        "from soloist.tokenizer import tool_formats\n"
        f"Tokenizer.load(Path({str(folder)!r})).output(chat=True, tools=[{{'type': 'function'}}])\n"
        "[tool_formats.load(name) for name in tool_formats.names()]\n"
        "assert not {'mlx', 'mlx.core', 'mlx_lm', 'transformers'} & sys.modules.keys(), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
