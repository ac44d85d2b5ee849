"""Held-out prompts with reference answers, from JSON lines to token ids. No MLX."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..tokenizer.errors import TokenizerError
from ..tokenizer.tokenizer import Tokenizer


class PromptsError(Exception):
    """The prompts file cannot be used; the message names the line."""


@dataclass(frozen=True, slots=True)
class Exam:
    """One prompt and its reference answer as ids; line counts from 1."""

    line: int
    prompt: tuple[int, ...]
    answer: tuple[int, ...]


def read_exams(path: Path, tokenizer: Tokenizer) -> list[Exam]:
    """Each line is one of: messages and answer; messages whose last one is the assistant's; prompt and answer (or
    completion). Raises PromptsError."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PromptsError(f"cannot read {path}: {error}") from None
    exams = [_exam(number, line, tokenizer) for number, line in enumerate(lines, start=1) if line.strip()]
    if not exams:
        raise PromptsError(f"{path} holds no prompts")
    return exams


def _exam(number: int, line: str, tokenizer: Tokenizer) -> Exam:
    try:
        entry = json.loads(line)
        prompt, answer = _split(entry, tokenizer)
        ids = tokenizer.encode(answer)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, TokenizerError) as error:
        raise PromptsError(f"line {number} of the prompts is not usable: {error!r}") from None
    if tokenizer.bos_id is not None and ids[:1] == [tokenizer.bos_id]:
        ids = ids[1:]
    if not ids or not prompt:
        raise PromptsError(f"line {number} of the prompts has an empty prompt or answer")
    return Exam(number, tuple(prompt), tuple(ids))


def _split(entry: dict[str, Any], tokenizer: Tokenizer) -> tuple[list[int], str]:
    answer = entry.get("answer", entry.get("completion"))
    if "messages" not in entry:
        if not isinstance(answer, str):
            raise ValueError("it has no answer")
        return tokenizer.encode(entry["prompt"]), answer
    messages = entry["messages"]
    if answer is None:
        if messages[-1]["role"] != "assistant":
            raise ValueError("it has no answer, and its last message is not the assistant's")
        messages, answer = messages[:-1], messages[-1]["content"]
    return tokenizer.render(messages, entry.get("tools"), {}), answer
