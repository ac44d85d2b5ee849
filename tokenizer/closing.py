"""A short way from anywhere in a JSON answer to its end, for when the tokens are running out.

Half a JSON document is of no use to anyone, and a model that is held to a grammar may go on in a string, or in white
space, until its limit. Plain Python over llguidance, cheap enough for the executor's steps.
"""

import itertools
import string
from typing import Any

import numpy as np

CLOSERS = b'}],:"' + string.digits.encode() + b"{[-"
LONGEST = 64  # tokens of a way
MARGIN = 16
GROWTH = 8  # tokens that one token of an answer may add to the way to its end


class Closing:
    """limit: most tokens of the answer. leave: ids that end reasoning."""

    def __init__(self, vocabulary: Any, limit: int, leave: tuple[int, ...]) -> None:
        self._vocabulary = vocabulary
        self._limit = limit
        self._margin = min(MARGIN, limit // 4)
        self._leave = leave
        self._ids = [ids[0] for byte in CLOSERS if len(ids := vocabulary.tokenize_bytes(bytes([byte]))) == 1]
        self._quote = _single(vocabulary, b'"')
        self._letters = [id for letter in b"qz" if (id := _single(vocabulary, bytes([letter]))) is not None]

    def look(self, state: Any, at: int) -> tuple[tuple[int, ...] | None, int]:
        """After `at` tokens: the way to go now, or None, and the place at which to look again."""
        left = self._limit - at
        way = self.way(state, left)
        if way is None:
            return None, at + max(1, (left - LONGEST) // GROWTH)
        spare = left - len(way) - self._margin
        if spare > 0 or not way:
            return None, at + max(1, spare // GROWTH)
        return way, at

    def way(self, state: Any, most: int) -> tuple[int, ...] | None:
        """Ids that complete the answer, at most that many; None if they are not found. The state is left as it is.

        Where several keys or words may come, the first one may lead into a schema that contains itself.
        """
        return self._try(state, most, 1) or self._try(state, most, -1)

    def _try(self, state: Any, most: int, pick: int) -> tuple[int, ...] | None:
        trial = state.deep_copy()
        way: list[int] = []
        while not (trial.is_stopped() or (way and trial.is_accepting())):
            step = self._step(trial, way, pick)
            if not step or len(way) + len(step) > min(most, LONGEST):
                return None
            if trial.try_consume_tokens(list(step)) < len(step):
                return None
            way += step
        return tuple(way)

    def _step(self, state: Any, way: list[int], pick: int) -> tuple[int, ...]:
        """What leads outwards: a quote where anything may be written, else a closing mark, else what there is.

        Where anything may be written even after a quote, the model is reasoning.
        """

        def may(token: int) -> bool:
            return bool(state.validate_tokens([token]))

        if self._quote is not None and self._letters and all(map(may, (*self._letters, self._quote))):
            return self._leave if way[-1:] == [self._quote] else (self._quote,)
        closer = next(filter(may, self._ids), None)
        return (closer,) if closer is not None else self._any(state, pick)

    def _any(self, state: Any, pick: int) -> tuple[int, ...]:
        """The first (pick 1) or the last (-1) id that may come and is no white space."""
        bits = np.unpackbits(np.frombuffer(state.compute_bitmask(), np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits[: self._vocabulary.vocab_size])[::pick]
        solid = (int(id) for id in allowed if self._vocabulary.decode_bytes([int(id)]).strip())
        return tuple(itertools.islice(solid, 1))


def _single(vocabulary: Any, text: bytes) -> int | None:
    ids = vocabulary.tokenize_bytes(text)
    return ids[0] if len(ids) == 1 else None
