"""Rebuilds a GGUF's tokenizer as a `tokenizers` file: byte-level BPE ("gpt2") and SentencePiece BPE ("llama").

A pre-tokenizer that we do not know is refused: a wrong one still reads well and tokenises numbers differently.
"""

from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from .gguf_file import GgufFile
from .model_errors import ModelDamaged, ModelUnsupported

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DIGITS = (r"\p{N}", GPT2)
# How each kind of byte-level tokenizer cuts text before merging: patterns applied one after the other.
CUTS = {
    "gpt-2": (GPT2,),
    "smollm": DIGITS,
    "starcoder": DIGITS,
    "refact": DIGITS,
    "command-r": DIGITS,
    "llama-bpe": (LLAMA3,),
    "llama-v3": (LLAMA3,),
    "llama3": (LLAMA3,),
    "qwen2": (LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"),),
    "default": (
        r"[\p{P}\$\+<=>\^~\|]+",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
        r"\p{N}+",
        r"[0-9][0-9][0-9]",
    ),
}
STARTS_WITH_BOS = {"llama-bpe", "llama-v3", "llama3"}  # unless the file says otherwise
# Control tokens that end a turn whatever the file names as its one end token.
TURN_ENDS = (
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>", "</s>",
)  # fmt: skip


def tokenizer(file: GgufFile) -> Tokenizer:
    """Raises ModelUnsupported (tokenizer model or pre-tokenizer, named) or ModelDamaged."""
    kind = file.metadata.get("tokenizer.ggml.model")
    _vocabulary(file)
    if kind == "gpt2":
        built = _byte_level(file)
    elif kind == "llama":
        built = _sentencepiece(file)
    else:
        raise ModelUnsupported(f"{file.path}: tokenizer model {kind!r} is not supported; 'gpt2' and 'llama' are")
    _add_special_tokens(built, file)
    _add_begin_and_end(built, file)
    return built


def tokenizer_config(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json, with the chat template that the file carries (none: a base model)."""
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    tokens = {key: _token(file, name) for key, name in names.items()}
    template = file.metadata.get("tokenizer.chat_template")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{key: token for key, token in tokens.items() if token is not None},
        **({"chat_template": template} if template else {}),
        "add_bos_token": _adds(file, "bos"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
    }


def end_ids(file: GgufFile) -> list[int]:
    """The ids that end generation: the file's own end tokens first, then each control token that ends a turn."""
    tokens, types = _vocabulary(file)
    own = [file.metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    found = [i for i in own if isinstance(i, int) and i < len(tokens)]
    ids = {token: i for i, token in enumerate(tokens) if types[i] in (CONTROL, USER_DEFINED)}
    found += [ids[token] for token in TURN_ENDS if token in ids]
    if not found:
        raise ModelDamaged(f"{file.path} names no end token: generation could not end")
    return list(dict.fromkeys(found))


def _vocabulary(file: GgufFile) -> tuple[list[str], list[int]]:
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise ModelDamaged(f"{file.path} carries no vocabulary (tokenizer.ggml.tokens)")
    types = file.metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
    if len(types) != len(tokens):
        raise ModelDamaged(f"{file.path} is damaged: {len(tokens)} tokens, {len(types)} token types")
    return tokens, types


def _ids(tokens: list[str]) -> dict[str, int]:
    return {token: i for i, token in reversed(list(enumerate(tokens)))}  # of doubles, the first keeps the text


def _byte_level(file: GgufFile) -> Tokenizer:
    kind = file.metadata.get("tokenizer.ggml.pre", "default")
    if kind not in CUTS:
        raise ModelUnsupported(f"{file.path}: pre-tokenizer {kind!r} is not supported; {', '.join(CUTS)} are")
    tokens, _ = _vocabulary(file)
    merges = [tuple(merge.split(" ", 1)) for merge in file.metadata.get("tokenizer.ggml.merges", [])]
    built = Tokenizer(_bpe(file, tokens, merges, ignore_merges=kind in STARTS_WITH_BOS))
    cuts: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in CUTS[kind]]
    if CUTS[kind] == DIGITS:  # as its authors wrote it
        cuts = [pre_tokenizers.Digits(individual_digits=True)]
    own_regex = CUTS[kind] in (DIGITS, (GPT2,))
    if CUTS[kind] == (GPT2,):
        cuts = []
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own_regex)
    built.pre_tokenizer = pre_tokenizers.Sequence([*cuts, level])
    built.decoder = decoders.ByteLevel()
    return built


def _sentencepiece(file: GgufFile) -> Tokenizer:
    """SentencePiece BPE joins the neighbours whose union scores best: merges, ranked by the score of what they make."""
    tokens, _ = _vocabulary(file)
    scores = file.metadata.get("tokenizer.ggml.scores", [])
    if len(scores) != len(tokens):
        raise ModelDamaged(f"{file.path} is damaged: {len(tokens)} tokens, {len(scores)} scores")
    if file.metadata.get("tokenizer.ggml.precompiled_charsmap"):
        raise ModelUnsupported(f"{file.path}: a tokenizer with tokenizer.ggml.precompiled_charsmap is not supported")
    ids = _ids(tokens)
    ranked = [
        (-scores[i], i, (piece[:cut], piece[cut:]))
        for piece, i in ids.items()
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    unknown = _token(file, "unknown")
    built = Tokenizer(
        _bpe(file, tokens, [m for *_, m in sorted(ranked)], byte_fallback=True, fuse_unk=True, unk_token=unknown)
    )
    prefix = file.metadata.get("tokenizer.ggml.add_space_prefix", True)
    steps: list[Any] = [normalizers.Prepend("▁")] if prefix else []
    built.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    parts: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    built.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if prefix else parts)
    return built


def _bpe(file: GgufFile, tokens: list[str], merges: list[Any], **options: Any) -> models.BPE:
    try:
        return models.BPE(vocab=_ids(tokens), merges=merges, **options)
    except Exception as error:  # `tokenizers` raises bare ones
        raise ModelDamaged(f"{file.path} is damaged: its merges do not fit its vocabulary ({error})") from error


def _token(file: GgufFile, name: str) -> str | None:
    tokens, _ = _vocabulary(file)
    at = file.metadata.get(f"tokenizer.ggml.{name}_token_id")
    return tokens[at] if isinstance(at, int) and at < len(tokens) else None


def _add_special_tokens(built: Tokenizer, file: GgufFile) -> None:
    """Control tokens become special at the ids that they have; user-defined ones are matched whole, but shown."""
    tokens, types = _vocabulary(file)
    kinds = (CONTROL, UNKNOWN) if file.metadata["tokenizer.ggml.model"] == "llama" else (CONTROL,)
    special = [token for token, kind in zip(tokens, types, strict=True) if kind in kinds and token]
    shown = [token for token, kind in zip(tokens, types, strict=True) if kind == USER_DEFINED and token]
    built.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    built.add_tokens([AddedToken(token, special=False, normalized=False) for token in shown])


def _adds(file: GgufFile, name: str) -> bool:
    sentencepiece = file.metadata.get("tokenizer.ggml.model") == "llama"
    usual = name == "bos" and (sentencepiece or file.metadata.get("tokenizer.ggml.pre") in STARTS_WITH_BOS)
    return bool(file.metadata.get(f"tokenizer.ggml.add_{name}_token", usual))


def _add_begin_and_end(built: Tokenizer, file: GgufFile) -> None:
    """Encoding adds the begin and end tokens that the file asks for."""
    begin = _token(file, "bos") if _adds(file, "bos") else None
    end = _token(file, "eos") if _adds(file, "eos") else None
    if begin is None and end is None:
        return
    single = " ".join([*([f"{begin}:0"] if begin else []), "$A:0", *([f"{end}:0"] if end else [])])
    pair = single + " " + single.replace(":0", ":1").replace("$A", "$B")
    specials = [(token, built.token_to_id(token)) for token in (begin, end) if token]
    built.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=specials)
