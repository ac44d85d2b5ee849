"""Prompts of a wished length that no cache has seen: random common words, drawn from the run's own seed."""

import random
from dataclasses import dataclass

# Each is one token, with its space, in the vocabularies of most models.
_COMMON = (
    "the of and to in is was that it for on as with by at from his her they have are this not had but be were all one "
    "when which you there their can more will out up about time than its only other some new could these two may then "
    "do first any my now such like our over man me even most made after also did many before must through back years "
    "where much your way well down should because long each just state those people too little good world own work men "
    "day get here old life both house under last right never same another know while great war three place part water"
)
WORDS = tuple(_COMMON.split())


@dataclass(frozen=True, slots=True)
class Gauge:
    """How a server's tokenizer counts our words: tokens = per_word * words + extra."""

    per_word: float = 1.0
    extra: float = 0.0

    def words(self, tokens: int) -> int:
        return max(1, round((tokens - self.extra) / self.per_word))


def fit(short: tuple[int, int], long: tuple[int, int]) -> Gauge:
    """From two measurements (words, tokens)."""
    per_word = (long[1] - short[1]) / (long[0] - short[0])
    return Gauge(per_word, short[1] - per_word * short[0]) if per_word > 0 else Gauge()


class Prompts:
    """A sequence of prompts. The same seed and label give the same prompts, so that every server gets the same load."""

    def __init__(self, seed: int, label: str, gauge: Gauge) -> None:
        self._random = random.Random(f"{seed} {label}")
        self._gauge = gauge

    def words(self, count: int) -> str:
        return " ".join(self._random.choices(WORDS, k=count))

    def text(self, tokens: int) -> str:
        """About so many tokens. Its first words are already unlike those of any other prompt."""
        return self.words(self._gauge.words(tokens))

    def refrain(self, words: int, repeats: int) -> str:
        """The same few words over and over."""
        return " ".join([self.words(words)] * repeats)

    def continued(self, prefix: str, tokens: int) -> str:
        """The prefix and about so many tokens more."""
        return f"{prefix} {self.words(max(1, round(tokens / self._gauge.per_word)))}"
