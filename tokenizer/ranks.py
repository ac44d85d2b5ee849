"""Vocabularies of byte strings and ranks (tekken.json, *.tiktoken) as a tokenizer.json.

Such a file lists tokens in the order in which byte pairs merge (openai/tiktoken); the merges themselves are recovered
by finding every pair of tokens that makes another.
"""

import base64
from pathlib import Path
from typing import Any

import orjson

from .errors import TokenizerError
from .folder import Folder
from .pieces import byte_alphabet
from .specification import Specification, control_texts, special_token, without_controls

# Special tokens of the tekken files that list none (mistral-common's first tekkenizer).
_FIRST_TEKKEN = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
# How each family cuts a text before merging; the file itself does not say.
_PATTERNS = {
    "QWenTokenizer": f"{_CONTRACTIONS}|{_WORDS}|\\p{{N}}|{_REST}",
    "TikTokenTokenizer": (
        rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_REST}"
    ),
}
_USUAL = f"{_CONTRACTIONS}|{_WORDS}|\\p{{N}}{{1,3}}|{_REST}"


def read_tekken(file: Path, folder: Folder) -> tuple[Specification, Folder]:
    """Mistral's tekken.json. Raises TokenizerError when the file is none."""
    try:
        data = orjson.loads(file.read_bytes())
        config = data["config"]
        count = config["default_num_special_tokens"]
        tokens = [base64.b64decode(t["token_bytes"]) for t in data["vocab"][: config["default_vocab_size"] - count]]
        listed = data.get("special_tokens") or [{"rank": i, "token_str": t} for i, t in enumerate(_FIRST_TEKKEN)]
        special = {t["rank"]: t["token_str"] for t in listed}
        pattern = config["pattern"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TokenizerError(f"{file} is no tekken.json: {error}") from error
    special |= {id: f"<SPECIAL_{id}>" for id in range(count) if id not in special}
    ranks = {token: count + rank for rank, token in enumerate(tokens)}
    folder = folder.completed({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})
    return _specification(ranks, special, pattern, folder), folder


def read_tiktoken(file: Path, folder: Folder) -> tuple[Specification, Folder]:
    """Lines of a base64 token and its rank. Special tokens are those that tokenizer_config.json declares.

    Raises TokenizerError when the file is no such list.
    """
    try:
        lines = (line.split() for line in file.read_bytes().splitlines() if line)
        ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{file} is no tiktoken vocabulary: {error}") from error
    special = {id: token["content"] for id, token in folder.added.items()}
    return _specification(ranks, special, _PATTERNS.get(folder.kind, _USUAL), folder), folder


def _specification(ranks: dict[bytes, int], special: dict[int, str], pattern: str, folder: Folder) -> Specification:
    spell = {byte: character for character, byte in byte_alphabet().items()}
    names = {token: "".join(map(spell.__getitem__, token)) for token in ranks}
    taken = set(names.values())
    vocabulary = {names[token]: id for token, id in ranks.items()}
    vocabulary |= {text: id for id, text in special.items() if text not in taken}
    merges = [
        [names[token[:at]], names[token[at:]]]
        for token in sorted(ranks, key=ranks.__getitem__)
        for at in range(1, len(token))
        if token[:at] in ranks and token[at:] in ranks
    ]
    added = [special_token(id, text) for id, text in sorted(special.items())]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    full: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": vocabulary,
            "merges": merges,
        },
    }
    bos = folder.special.get("bos_token") if folder.adds_bos is not False else None
    return Specification(
        full=full,
        literal=without_controls(full, special),
        rest=None,
        controls=control_texts(added, folder.templates.values()),
        registered=tuple(special[id] for id in sorted(special) if special[id] not in ("<unk>", "<s>", "</s>")),
        prefix=tuple(id for id, text in special.items() if text == bos),
    )
