"""Every layout of a vocabulary against the library that defined it, and folders that are broken."""

import base64
import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tiktoken
from soloist.tokenizer.errors import TokenizerError
from soloist.tokenizer.ranks import _PATTERNS, _USUAL
from soloist.tokenizer.tokenizer import Tokenizer
from tiny_models import ALPHABET, BOS

Folders = Callable[..., Path]
TEXT = (
    "The quick brown fox jumps over the lazy dog, again and again. ",
    "Ein Übermut naïver Cafés; 3.14 and 1234567890 (not) <b>bold</b>!\n",
    "日本語のテキスト 한국어 العربية हिन्दी\n\n",
    "def f(x):\n    return x[0] < 1 | 2  # code\n",
)
HARD = (
    *("", " ", "  ", "Hello", " Hello", "Hello  world ", "a\r\nb\n\n c\t\td", "naïve café e\u0301", "x\0y"),
    *("👩‍👩‍👧‍👦 ok 🇩🇪", "日本語テキスト 한국어 العربية עברית ไทย", "\n\n\n", "1234567890 3.14", "<turn>\n<s>[INST]"),
    *("aaaa" * 7, " " * 33 + "x", "=" * 77, "x" * 5000, "I'LL can't", "\u2581 a\u2581b", *TEXT),
)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("rule", ["identity", "nmt_nfkc"])
@pytest.mark.parametrize(
    "options",
    [
        {"byte_fallback": True, "remove_extra_whitespaces": False},
        {"byte_fallback": True, "remove_extra_whitespaces": False, "add_dummy_prefix": False},
        {"byte_fallback": False},
        {
            "byte_fallback": True,
            "remove_extra_whitespaces": False,
            "user_defined_symbols": ["<turn>"],
            "control_symbols": ["[INST]"],
        },
    ],
)
def test_a_sentencepiece_model_gives_the_ids_of_its_library(
    tmp_path: Path, kind: str, rule: str, options: dict[str, Any]
) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT * 20), model_writer=model, vocab_size=420, model_type=kind,
        normalization_rule_name=rule, hard_vocab_limit=False, minloglevel=2, **options,
    )  # fmt: skip
    (tmp_path / "tokenizer.model").write_bytes(model.getvalue())
    ours, reference = Tokenizer.load(tmp_path), sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    control = "[INST]" if "control_symbols" in options else "<s>"
    assert ours.encode(control, specials=True)[-1] == reference.piece_to_id(control)
    for text in HARD:
        # The library always finds its user-defined symbols; to us a client's text is never markup.
        assert ours.encode(text, specials="[INST]" not in text) == [1, *reference.encode(text)] or "<turn>" in text, (
            text
        )


def ranks() -> dict[bytes, int]:
    """A byte-pair vocabulary learnt from the sample text, as tiktoken orders it."""
    learnt = {bytes([byte]): byte for byte in range(256)}
    words = [[bytes([b]) for b in word.encode()] for text in TEXT for word in text.replace(" ", "\0 ").split("\0")]
    for _ in range(80):
        counts: dict[bytes, int] = {}
        for word in words:
            for left, right in itertools.pairwise(word):
                counts[left + right] = counts.get(left + right, 0) + 1
        best = max(counts, key=lambda pair: (counts[pair], pair))
        learnt.setdefault(best, len(learnt))
        for word in words:
            at = 0
            while at < len(word) - 1:
                if word[at] + word[at + 1] == best:
                    word[at : at + 2] = [best]
                at += 1
    return learnt


@pytest.mark.parametrize("kind", [*_PATTERNS, "PreTrainedTokenizer"])
@pytest.mark.parametrize("file", ["tokenizer.model", "some.tiktoken"])
def test_a_tiktoken_file_gives_the_ids_of_its_library(tmp_path: Path, kind: str, file: str) -> None:
    learnt = ranks()
    lines = (f"{base64.b64encode(token).decode()} {rank}" for token, rank in learnt.items())
    (tmp_path / file).write_text("\n".join(lines))
    end = len(learnt)
    declared = {str(end): {"content": "<|im_end|>", "special": True}}
    config = {"tokenizer_class": kind, "added_tokens_decoder": declared, "eos_token": "<|im_end|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    reference = tiktoken.Encoding(
        "test", pat_str=_PATTERNS.get(kind, _USUAL), mergeable_ranks=learnt, special_tokens={"<|im_end|>": end}
    )
    ours = Tokenizer.load(tmp_path)
    for text in HARD:
        assert ours.encode(text) == reference.encode(text, disallowed_special=()), text
        assert b"".join(map(ours.token_bytes, ours.encode(text))).decode() == text
    assert ours.encode("a<|im_end|>", specials=True) == [97, end]
    assert ours.end_ids == {end}


def test_end_tokens_are_the_union_of_all_that_name_one(byte_folder: Folders) -> None:
    folder = byte_folder()
    (folder / "config.json").write_text(json.dumps({"eos_token_id": [258], "text_config": {"eos_token_id": 260}}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [261, True, "x"]}))
    assert Tokenizer.load(folder).end_ids == {257, 258, 260, 261}


def test_control_tokens_that_no_text_reaches_are_registered(byte_folder: Folders) -> None:
    """As in a tokenizer.json made of Mistral's file without its control tokens."""
    folder = byte_folder(
        ["[INST]", "[/INST]", "[Plain]"], template="{{ bos_token }}[INST]{{ messages[0].content }}[/INST]"
    )
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.registered == ("[INST]", "[/INST]")
    ids = tokenizer.render([{"role": "user", "content": "[INST]"}], None, {})
    assert ids == [BOS, 265, *b"[INST]", 266]


def test_tokens_that_only_the_configuration_declares_are_registered(byte_folder: Folders) -> None:
    folder = byte_folder()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["added_tokens_decoder"] = {"265": {"content": "<|extra|>", "special": True}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.registered == ("<|extra|>",)
    assert tokenizer.encode("a<|extra|>", specials=True) == [97, 265]


def test_special_tokens_may_be_objects(byte_folder: Folders) -> None:
    folder = byte_folder(template="{{ bos_token }}|{{ eos_token }}|{{ unk_token }}")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["bos_token"] = {"content": "<|bos|>", "lstrip": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.load(folder).render([{"role": "user", "content": ""}], None, {}) == [BOS, 124, 257, 124]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", "{"),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", '{"model": {"type": "Nonsense", "vocab": {}}}'),
        ("tokenizer.model", "\n\x05junk"),
        ("tokenizer.model", "!!notbase64!! 0\n"),
        ("tokenizer.model", ""),
        ("tekken.json", "{}"),
        ("tokenizer_config.json", "[]"),
        ("README", ""),
    ],
)
def test_a_broken_folder_is_refused_by_name(tmp_path: Path, file: str, content: str) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(TokenizerError):
        Tokenizer.load(tmp_path)


def test_lone_surrogates_are_refused(chatml: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match="surrogate"):
        chatml.encode("\ud800")
    with pytest.raises(TokenizerError, match="surrogate"):
        chatml.render([{"role": "user", "content": "\ud800"}], None, {})


def test_the_byte_alphabet_is_gpt2s(chatml: Tokenizer) -> None:
    assert [chatml.token_bytes(id) for id in ALPHABET] == [bytes([byte]) for byte in ALPHABET]
