"""A model's vocabulary for llguidance, and the check of a grammar at the door. Runs on any thread."""

from collections.abc import Sequence
from typing import Any

from .grammar import GrammarError


class _Vocabulary:
    """What llguidance asks of a tokenizer: the bytes of every id, and which ids are no text."""

    def __init__(self, tokens: Sequence[bytes], special: Sequence[int], bos: int | None, end: int) -> None:
        self.tokens = list(tokens)
        self.special_token_ids = list(special)
        self.bos_token_id, self.eos_token_id = bos, end
        self._longest_first = {token: id for id, token in enumerate(tokens) if token and id not in special}

    def __call__(self, text: bytes) -> list[int]:
        """Ids of some bytes, longest match first. Only used to guess at forced text, which must not be canonical."""
        ids, at = [], 0
        while at < len(text):
            size = next(
                (n for n in range(min(32, len(text) - at), 0, -1) if text[at : at + n] in self._longest_first), 0
            )
            if not size:
                break
            ids.append(self._longest_first[text[at : at + size]])
            at += size
        return ids


def vocabulary(tokens: Sequence[bytes], special: Sequence[int], bos: int | None, ends: Sequence[int]) -> Any:
    """llguidance's LLTokenizer for these tokens, in the order of their ids. ends: at least one."""
    import llguidance

    wrapper = llguidance.TokenizerWrapper(_Vocabulary(tokens, special, bos, ends[0]))
    return llguidance.LLTokenizer(wrapper, n_vocab=len(tokens), eos_token=list(ends))


def check(lark: str, tokenizer: Any, param: str) -> str:
    """The grammar as llguidance's matcher takes it. Raises GrammarError naming the field when it cannot be enforced."""
    import llguidance

    grammar: str = llguidance.LLMatcher.grammar_from_lark(lark)
    failed, messages = llguidance.LLMatcher.validate_grammar_with_warnings(grammar, tokenizer)
    if failed:
        raise GrammarError(f"the schema cannot be enforced: {messages[0].splitlines()[0]}", param)
    return grammar
