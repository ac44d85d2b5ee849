"""Rebuilt tokenizers against their authorities: cuts as published, and SentencePiece itself."""

from pathlib import Path

import gguf
import pytest
import sentencepiece
import tiny_gguf
from soloist.ops.gguf_file import GgufFile
from soloist.ops.gguf_tokenizer import end_ids, tokenizer, tokenizer_config
from tokenizers import Tokenizer

TEXT = "abc12345 don't  x"


def rebuilt(path: Path, pre: str = "gpt-2", **more: object) -> Tokenizer:
    with GgufFile(tiny_gguf.write(path / "m.gguf", tiny_gguf.weights(), pre=pre, **more)) as file:
        return tokenizer(file)


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["abc", "12345", " don", "'t", " ", " x"]),
        ("smollm", ["abc", "1", "2", "3", "4", "5", " don", "'t", " ", " x"]),
        ("llama-bpe", ["abc", "123", "45", " don", "'t", " ", " x"]),
        ("qwen2", ["abc", "1", "2", "3", "4", "5", " don", "'t", " ", " x"]),
        ("default", ["abc", "123", "45", " don", "'", "t", " ", " x"]),
    ],
)
def test_each_pre_tokenizer_cuts_as_its_rule_says(pre: str, pieces: list[str], tmp_path: Path) -> None:
    cut = rebuilt(tmp_path, pre).pre_tokenizer.pre_tokenize_str(TEXT)
    assert [piece.replace("Ġ", " ") for piece, _ in cut] == pieces


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2", "default"])
def test_bytes_come_back_as_they_went_in(pre: str, tmp_path: Path) -> None:
    built = rebuilt(tmp_path, pre)
    text = "été 日本 🙂\n\t 2024"
    assert built.decode(built.encode(text, add_special_tokens=False).ids) == text


def test_control_tokens_are_matched_whole_and_are_special(tmp_path: Path) -> None:
    built = rebuilt(tmp_path)
    assert built.encode("<|im_end|>").ids == [1]
    assert built.decode([1]) == ""


def test_the_begin_token_is_added_where_the_file_or_its_kind_says_so(tmp_path: Path) -> None:
    assert rebuilt(tmp_path).encode("a").ids[0] != 0
    assert rebuilt(tmp_path, "llama-bpe").encode("a").ids[0] == 0
    assert rebuilt(tmp_path, edit=lambda writer: writer.add_add_bos_token(True)).encode("a").ids[0] == 0
    assert rebuilt(tmp_path, "llama-bpe", edit=lambda writer: writer.add_add_bos_token(False)).encode("a").ids[0] != 0


def test_the_chat_template_and_every_end_token_are_carried_over(tmp_path: Path) -> None:
    with GgufFile(tiny_gguf.write(tmp_path / "m.gguf", tiny_gguf.weights())) as file:
        config = tokenizer_config(file, {"max_position_embeddings": 512})
        assert config["chat_template"] == "{{ messages[0]['content'] }}"
        assert (config["bos_token"], config["eos_token"]) == ("<|bos|>", "<|im_end|>")
        assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
        assert end_ids(file) == [1, 2]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> sentencepiece.SentencePieceProcessor:
    """A small SentencePiece BPE model with byte fallback, trained here, set up as Llama 2's is."""
    folder = tmp_path_factory.mktemp("pieces")
    sentence = "the quick brown fox jumps over the lazy dog while other foxes sleep in the brown barn"
    words = sentence.split()
    lines = [" ".join(words[i:] + words[:i]) for i in range(len(words))]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(folder / "spm"), vocab_size=340, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))


@pytest.mark.parametrize(
    "text", ["the fox", "  the  foxes ", "quickest Über-fox 日本 🙂", "\nthe\tdog", "", " ", "brownbrownbrown lazily"]
)
def test_a_sentencepiece_tokenizer_gives_sentencepieces_ids(
    text: str, pieces: sentencepiece.SentencePieceProcessor, tmp_path: Path
) -> None:
    def vocabulary(writer: gguf.GGUFWriter) -> None:
        size = pieces.get_piece_size()
        kinds = [2 if pieces.is_unknown(i) else 3 if pieces.is_control(i) else 1 for i in range(size)]
        writer.add_tokenizer_model("llama")
        writer.add_token_list([pieces.id_to_piece(i) for i in range(size)])
        writer.add_token_scores([pieces.get_score(i) for i in range(size)])
        writer.add_token_types([6 if pieces.is_byte(i) else kinds[i] for i in range(size)])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)

    built = rebuilt(tmp_path, vocabulary=False, edit=vocabulary)
    ids = pieces.encode(text)
    assert built.encode(text).ids == [1, *ids]
    assert built.decode(ids) == pieces.decode(ids)
