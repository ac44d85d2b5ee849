"""Which marks a model puts around its reasoning, and whether the prompt has already opened the block."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Marks:
    """start and end of a reasoning block, as text."""

    start: str
    end: str


_THINK = Marks("<think>", "</think>")
_IN_USE = (
    _THINK,
    Marks("<longcat_think>", "</longcat_think>"),
    Marks("<|think:start|>", "<|think:end|>"),
    Marks("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    Marks("<|channel>thought", "<channel|>"),
    Marks("[THINK]", "[/THINK]"),
    Marks("<seed:think>", "</seed:think>"),
    Marks("<|START_THINKING|>", "<|END_THINKING|>"),
    Marks("<thinking>", "</thinking>"),
    Marks("<reasoning>", "</reasoning>"),
    Marks("<thought>", "</thought>"),
    Marks("◁think▷", "◁/think▷"),
)
_PARTS = {"<|open|>think<|sep|>": ("<|open|>", "<|close|>"), "<|channel>thought": ("<|channel>", "<channel|>")}


def marks(templates: Collection[str], added: Collection[str]) -> Marks:
    """The pair that the vocabulary holds or the template writes; `<think>` where neither names one."""
    for pair in _IN_USE:
        if all(part in added for part in _PARTS.get(pair.start, (pair.start, pair.end))):
            return pair
    source = "\n".join(templates)
    return next((pair for pair in _IN_USE if pair.start in source and pair.end in source), _THINK)
