"""The demo model's tokenizer against transformers, and what text costs."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from demo_model import demo_folder
from hypothesis import given, settings
from hypothesis import strategies as st
from soloist.tokenizer.tokenizer import Tokenizer

CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [
        {"role": "system", "content": "Be brief. <b>|x|</b>"},
        {"role": "user", "content": " 2 < 3, naïve 日本 👍🏽\r\n\n"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": ""},
    ],
]


@pytest.fixture(scope="module")
def demo() -> Tokenizer:
    return Tokenizer.load(demo_folder())


@pytest.fixture(scope="module")
def reference() -> Iterator[Any]:
    from transformers import AutoTokenizer

    yield AutoTokenizer.from_pretrained(demo_folder())


@pytest.mark.parametrize("chat", CHATS)
def test_chats_are_what_transformers_encodes(demo: Tokenizer, reference: Any, chat: list[dict[str, Any]]) -> None:
    expected = reference.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert demo.render(chat, None, {}) == expected


@settings(max_examples=50)
@given(st.text(st.characters(exclude_categories=["C"], max_codepoint=0xFFFF)))  # this vocabulary lacks some bytes
def test_any_text_survives_on_a_real_vocabulary(demo: Tokenizer, reference: Any, text: str) -> None:
    ids = demo.encode(text)
    output = demo.output(chat=True)
    shown = "".join(output.push([id]).content for id in ids) + output.finish().content
    assert b"".join(map(demo.token_bytes, ids)).decode() == text
    assert shown == text or text.lstrip().startswith("<think>")
    if "<" not in text:
        assert ids == reference.encode(text)


@given(st.lists(st.integers(0, 49_151), max_size=30))
def test_any_ids_stream_as_transformers_decodes_them(demo: Tokenizer, reference: Any, ids: list[int]) -> None:
    output = demo.output()
    shown = "".join(output.push([id]).content for id in ids) + output.finish().content
    assert shown == reference.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def test_other_threads_run_while_a_long_prompt_is_encoded(demo: Tokenizer) -> None:
    """Encoding must not hold the GIL: a counting thread gets on. `encode` instead of a batch lets it count to a few."""
    text = "The quick brown fox jumps over the <lazy> dog. " * 10_000
    counted, done = 0, threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=count)
    thread.start()
    ids = demo.encode(text)
    done.set()
    thread.join()
    assert len(ids) > 100_000
    assert counted > 5
