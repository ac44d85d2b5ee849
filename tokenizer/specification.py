"""A tokenizer.json as data: which of its tokens are control tokens, and the same vocabulary without them.

Control tokens are all special ones, and those added tokens that are markup of turns, reasoning or tool calls. A
vocabulary can also carry such entries that nothing maps text to; they are registered here.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from .errors import TokenizerError
from .folder import Folder

# <|im_start|>, <｜User｜>, [INST], [/INST], [TOOL_CALLS]; and names that are in use for reasoning and tool calls.
_SHAPES = re.compile(
    r"<\|[^|<>\s]+\|>|<｜[^｜<>]+｜>|<\|[^|<>\s]+>|<[^|<>\s]+\|>|\[/?[A-Z][A-Z_]+\]"
    r"|</?(?:think|thinking|thought|reasoning|tool|tools|tool_call|tool_calls|tool_response|tool_result|function_call"
    r"|start_function_call|end_function_call|longcat_\w+|minimax:tool_call|arg_key|arg_value|answer|observation)>"
)


@dataclass(frozen=True, slots=True)
class Specification:
    """full, literal, rest: three tokenizer.json values (see Encoder); rest is None where it equals literal.

    controls: texts of the control tokens. registered: those among them that the folder's own tokenizer did not map.
    prefix: ids put before a text, None to ask the post-processor. plain_is_literal: text without control tokens is
    encoded by `literal`, because `full` treats its first space as after a control token.
    """

    full: dict[str, Any]
    literal: dict[str, Any]
    rest: dict[str, Any] | None
    controls: frozenset[str]
    registered: tuple[str, ...] = ()
    prefix: tuple[int, ...] | None = None
    plain_is_literal: bool = False


def read_specification(file: Path, folder: Folder) -> Specification:
    """From a tokenizer.json. Raises TokenizerError when the file is not one."""
    try:
        full = orjson.loads(file.read_bytes())
        vocabulary = full["model"]["vocab"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TokenizerError(f"{file} is not a tokenizer.json: {error}") from error
    full["truncation"] = full["padding"] = None
    added = full.setdefault("added_tokens", [])
    missing = _unregistered(full, folder)
    added += [special_token(id, text) for text, id in missing.items()]
    if isinstance(vocabulary, dict):  # tokenizers renumbers added tokens that the model does not hold
        for text, id in missing.items():
            vocabulary.setdefault(text, id)
    controls = control_texts(added, folder.templates.values())
    literal = without_controls(full, {t["id"]: t["content"] for t in added if t["content"] in controls})
    return Specification(full, literal, _after_control(literal), controls, tuple(missing))


def control_texts(added: Iterable[dict[str, Any]], templates: Iterable[str]) -> frozenset[str]:
    """Special tokens, and ordinary added ones that are shaped as markup or that a template writes."""
    sources = "\n".join(templates)
    return frozenset(
        text
        for token in added
        if (text := token["content"]) and (token["special"] or _SHAPES.fullmatch(text) or _written(text, sources))
    )


def _written(text: str, sources: str) -> bool:
    """Whether a template writes it as markup; runs of spaces and HTML that a vocabulary merely abbreviates are not."""
    return len(text) > 2 and text[0] in "<[" and text[-1] in ">]" and text in sources


def special_token(id: int, text: str, *, special: bool = True) -> dict[str, Any]:
    """An added token that is matched as it is spelled."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    return {"id": id, "content": text, **flags}


def _unregistered(full: dict[str, Any], folder: Folder) -> dict[str, int]:
    """Control tokens that the configuration declares or that the vocabulary holds beyond the reach of any text."""
    known = {token["content"] for token in full["added_tokens"]}
    taken = {token["id"] for token in full["added_tokens"]}
    model = full["model"]
    missing: dict[str, int] = {}
    if isinstance(model["vocab"], dict):
        markup = {text: id for text, id in model["vocab"].items() if text[:1] in "<[" and _SHAPES.fullmatch(text)}
        markup = {text: id for text, id in markup.items() if text not in known}
        if markup:
            made = {"".join(_pair(merge)) for merge in model.get("merges", [])}
            missing |= {text: id for text, id in markup.items() if text not in made}
    for id, token in folder.added.items():
        text = token["content"]
        if token.get("special") and text not in known and id not in taken and text not in missing:
            missing[text] = id
    return dict(sorted(missing.items(), key=lambda item: item[1]))


def _pair(merge: Any) -> list[str]:
    return merge.split(" ") if isinstance(merge, str) else list(merge)


def without_controls(full: dict[str, Any], controls: dict[int, str]) -> dict[str, Any]:
    """The same vocabulary in which no text reaches a control token. controls: id to text."""
    model = dict(full["model"])
    texts = set(controls.values())
    unknown = model.get("unk_token")
    if isinstance(model["vocab"], dict):
        model["vocab"] = {
            _unreachable(id) if text in texts and text != unknown else text: id for text, id in model["vocab"].items()
        }
        if "merges" in model and texts:
            model["merges"] = [
                m for m in model["merges"] if not texts.intersection([*(pair := _pair(m)), "".join(pair)])
            ]
    else:  # Unigram: a list of pieces and scores
        model["vocab"] = [
            [_unreachable(id) if id in controls else piece, score] for id, (piece, score) in enumerate(model["vocab"])
        ]
    kept = [token for token in full["added_tokens"] if token["content"] not in texts]
    return {**full, "model": model, "added_tokens": kept}


def _unreachable(id: int) -> str:
    return f"\ufdd0\ufdd1{id}\ufdd0"


def _after_control(literal: dict[str, Any]) -> dict[str, Any] | None:
    """Where only the first word of a text gets a space (Metaspace, `first`), text after a control token gets none."""
    step = literal.get("pre_tokenizer")
    if not step:
        return None
    steps = step["pretokenizers"] if step["type"] == "Sequence" else [step]
    if not any(s["type"] == "Metaspace" and s.get("prepend_scheme") == "first" for s in steps):
        return None
    changed = [{**s, "prepend_scheme": "never"} if s["type"] == "Metaspace" else s for s in steps]
    return {**literal, "pre_tokenizer": {"type": "Sequence", "pretokenizers": changed}}
