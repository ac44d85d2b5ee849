"""Follows one answer through its grammar, for the executor: which ids may come next, and how to come to an end in time.

Plain Python over llguidance; a Guide is made on any thread, a Matcher is used by one thread at a time.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .closing import Closing
from .grammar import GrammarError

if TYPE_CHECKING:
    from .tokenizer import Tokenizer

Words: TypeAlias = "np.ndarray[Any, np.dtype[np.uint32]]"


class Guide:
    """A compiled grammar. `matcher()` costs microseconds: one for each choice.

    vocabulary: of `Tokenizer.grammar_vocabulary`. limit: most tokens of the answer, if it is to be closed before they
    run out; None leaves it as it is cut. leave: ids that end reasoning, should it be going on then.
    """

    def __init__(self, vocabulary: Any, grammar: str, limit: int | None = None, leave: Sequence[int] = ()) -> None:
        import llguidance

        self._beginning = llguidance.LLMatcher(vocabulary, grammar)
        self._width = -(-vocabulary.vocab_size // 32)
        self._closing = None if limit is None else Closing(vocabulary, limit, tuple(leave))

    @property
    def possible(self) -> bool:
        """Whether any answer can begin: a schema that is nothing but itself, or too large, shows here."""
        trial = self._beginning.deep_copy()
        return any(trial.compute_bitmask()) and not trial.is_error()

    def matcher(self) -> "Matcher":
        return Matcher(self._beginning.deep_copy(), self._width, self._closing)


class Matcher:
    """hurried: the limit came near, and what is allowed from here on is one short way to a complete answer."""

    __slots__ = ("_at", "_closing", "_look", "_state", "_way", "_width")

    def __init__(self, state: Any, width: int, closing: Closing | None) -> None:
        self._state = state
        self._width = width
        self._closing = closing
        self._at = 0
        self._look = 0  # the next place at which the way to the end is measured
        self._way: tuple[int, ...] | None = None

    @property
    def hurried(self) -> bool:
        return self._way is not None

    def mask(self) -> Words:
        """uint32[ceil(V / 32)]: the ids that may come next, lowest bit first. Raises when the grammar has failed."""
        if self._closing is not None and self._way is None and self._at >= self._look:
            self._way, self._look = self._closing.look(self._state, self._at)
        if self._way:
            words = np.zeros(self._width, np.uint32)
            words[self._way[0] // 32] = 1 << (self._way[0] % 32)
            return words
        words = np.frombuffer(self._state.compute_bitmask(), np.uint32)[: self._width]
        if self._state.is_error():
            raise RuntimeError("the grammar cannot go on from here")
        return words

    def accept(self, token: int) -> bool:
        """Take a drawn id; True when nothing may follow it. Raises when the grammar does not allow it."""
        if not self._state.consume_token(token):
            raise RuntimeError(f"the grammar does not allow id {token} here")
        self._at += 1
        if self._way is not None:
            self._way = self._way[1:]
            return not self._way
        return bool(self._state.is_stopped())

    def copy(self) -> "Matcher":
        twin = Matcher(self._state.deep_copy(), self._width, self._closing)
        twin._at, twin._look, twin._way = self._at, self._look, self._way
        return twin


def guide(tokenizer: "Tokenizer", size: int, limit: int, **demands: Any) -> Guide | None:
    """What an answer is held to, over `size` logits; None when it is free. demands: those of `Tokenizer.grammar`.

    An answer that may be nothing but JSON content is closed within its limit. A call is not: arguments that were made
    up in a hurry would be carried out. Raises GrammarError.
    """
    must_call = demands.get("tool_choice") not in (None, "none", "auto")
    if not must_call and (demands.get("response_format") or {}).get("type", "text") == "text":
        return None
    vocabulary = tokenizer.grammar_vocabulary(size)
    grammar = tokenizer.grammar(**demands)
    if grammar is None:
        return None
    may_call = must_call or demands.get("tools")
    held = Guide(vocabulary, grammar, None if may_call else limit, tokenizer.reasoning_end(size))
    if not held.possible:
        raise GrammarError("the schema allows no answer, or is too large", "tools" if must_call else "response_format")
    return held
