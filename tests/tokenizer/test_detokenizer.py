"""Streaming text equals the decode of all ids, whatever the pieces are."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from soloist.tokenizer.pieces import Recipe
from soloist.tokenizer.tokenizer import Tokenizer

Folders = Callable[..., Path]
PIECES = ["Hi ", b"\xf0\x9f", b"\x98\x80", b" caf\xc3", b"\xa9 ", b"\xe4\xbd", b"\xa0\xe5", b"\xa5\xbd", " end."]


def streamed(tokenizer: Tokenizer, ids: Sequence[int], size: int = 1) -> list[str]:
    output = tokenizer.output()
    pushed = [output.push(ids[at : at + size]).content for at in range(0, len(ids), size)]
    return [*pushed, output.finish().content]


@given(st.text())
def test_any_text_survives_the_way_to_ids_and_back(chatml: Tokenizer, text: str) -> None:
    assert "".join(streamed(chatml, chatml.encode(text))) == text


@pytest.fixture(scope="module")
def pair(byte_folder: Folders) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """Our tokenizer of split characters, and the library's."""
    folder = byte_folder(PIECES)
    return Tokenizer.load(folder), tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@given(st.lists(st.integers(0, 320), max_size=20), st.integers(1, 5))
def test_any_ids_stream_as_the_whole_decodes(pair: Any, ids: list[int], size: int) -> None:
    ours, reference = pair
    assert "".join(streamed(ours, ids, size)) == reference.decode(ids, skip_special_tokens=True)


def test_split_characters_are_held_back_until_they_are_whole(byte_folder: Folders) -> None:
    shown = streamed(Tokenizer.load(byte_folder(PIECES)), range(265, 274))
    assert "".join(shown) == "Hi 😀 café 你好 end."
    assert not any("�" in piece for piece in shown)


def test_a_character_that_never_completes_is_not_lost(byte_folder: Folders) -> None:
    assert streamed(Tokenizer.load(byte_folder(PIECES)), [265, 266]) == ["Hi ", "", "�"]


def test_a_leading_space_is_kept(byte_folder: Folders) -> None:
    tokenizer = Tokenizer.load(byte_folder([" Leading", " two", "  spaces", " kept "]))
    assert "".join(streamed(tokenizer, range(265, 269))) == " Leading two  spaces kept "


def test_sentencepiece_loses_exactly_the_space_that_its_decoder_strips(spm: Tokenizer) -> None:
    assert "".join(streamed(spm, [259, 260, 261])) == " leading x"
    assert "".join(streamed(spm, [260, 261])) == "leading x"


def test_byte_tokens_make_characters(spm: Tokenizer) -> None:
    ids = [262, *(3 + byte for byte in "é😀".encode())]
    assert "".join(streamed(spm, ids)) == "aé😀"


def test_ill_formed_byte_tokens_neither_raise_nor_hide_what_surrounds_them(spm: Tokenizer) -> None:
    assert "".join(streamed(spm, [262, 3 + 0xFF, 3 + 0xC3, 262])) == "a��a"


def test_ids_without_an_entry_print_nothing(chatml: Tokenizer) -> None:
    assert "".join(streamed(chatml, [104, 99_999, 1 << 40, -1, 105])) == "hi"


def test_special_tokens_print_nothing_and_other_markers_do(chatml: Tokenizer) -> None:
    assert "".join(streamed(chatml, [259, 104, 260, 261, 257])) == "h<think>"


def test_token_bytes_are_raw(byte_folder: Folders, spm: Tokenizer) -> None:
    tokenizer = Tokenizer.load(byte_folder(PIECES))
    assert [tokenizer.token_bytes(id) for id in (266, 267, 261, 9999)] == [b"\xf0\x9f", b"\x98\x80", b"<think>", b""]
    assert [spm.token_bytes(id) for id in (3 + 0xC3, 260)] == [b"\xc3", b" leading"]
    assert tokenizer.token_text(266) == "�"


def test_a_byte_level_vocabulary_under_a_sentencepiece_decoder_shows_spaces() -> None:
    decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    recipe = Recipe.read(decoder, {"type": "ByteLevel", "add_prefix_space": False})
    assert recipe.bytes_of("\u0120two") == b" two"


def test_a_control_token_that_is_a_stop_string_stops(chatml: Tokenizer) -> None:
    output = chatml.output(("<|im_end|>",))
    assert output.push([104, 260]).stop == "<|im_end|>"


def test_an_unknown_decoder_streams_as_the_whole_decodes(byte_folder: Folders) -> None:
    folder = byte_folder(PIECES)
    file: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text())
    shout = {"type": "Replace", "pattern": {"Regex": "e"}, "content": "E"}
    file["decoder"] = {"type": "Sequence", "decoders": [file["decoder"], shout]}
    (folder / "tokenizer.json").write_text(json.dumps(file))
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = list(range(265, 274))
    assert "".join(streamed(Tokenizer.load(folder), ids)) == reference.decode(ids)
