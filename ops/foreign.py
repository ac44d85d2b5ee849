"""Foreign words: tokens in a script that the text around them does not use. Plain Python, no MLX.

A wrong sampler betrays itself in them. If one uniform in 2**25 comes out as exactly 1, its token's Gumbel noise is
infinite and the token is drawn whatever its probability: with V tokens a draw goes wrong with probability
1 - (1 - 2**-25)**V, one draw in 221 at V = 151,936, and the word is then any word at all. So the rate of foreign
words that a fault of this kind causes can be computed beforehand and laid beside the observed one.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

# The probability that float32(word) / float32(2**32 - 1) rounds to 1: 128 words of 2**32.
CLOSED_END = 2.0**-25

# First words of letter names that name no script.
_COMMON = frozenset({
    "ANGSTROM", "BLACK", "CIRCLED", "DOUBLE", "EULER", "FEMININE", "INFORMATION", "KELVIN", "MASCULINE",
    "MATHEMATICAL", "MICRO", "MODIFIER", "OHM", "PARENTHESIZED", "PLANCK", "ROTATED", "SCRIPT", "SQUARED",
    "SUBSCRIPT", "SUPERSCRIPT", "TURNED",
})  # fmt: skip
_WIDTHS = frozenset({"FULLWIDTH", "HALFWIDTH"})
# Scripts that one writing system mixes: whoever writes kana writes Han too.
_TOGETHER = (frozenset({"CJK", "HIRAGANA", "KATAKANA"}), frozenset({"CJK", "HANGUL"}), frozenset({"CJK", "BOPOMOFO"}))


@lru_cache(maxsize=65536)
def script(character: str) -> str | None:
    """The script of a letter, as Unicode's character names spell it ("LATIN", "CJK"); None for all that has none."""
    if not unicodedata.category(character).startswith("L"):
        return None
    words = unicodedata.name(character, "").replace("-", " - ").split()
    if words and words[0] in _WIDTHS:
        words = words[1:]
    return words[0] if words and words[0] not in _COMMON else None


def scripts(text: str) -> frozenset[str]:
    """The scripts of a text's letters. Digits, punctuation, marks, emoji and broken UTF-8 have none."""
    return frozenset(found for character in text if (found := script(character)))


def home_scripts(text: str) -> frozenset[str]:
    """The scripts that belong in answers to a text: its own, and those that its writers mix with them."""
    own = scripts(text)
    # A Latin word is no stranger in any text: names, units, code.
    home = own | {"LATIN"}
    for company in _TOGETHER:
        if own & (company - {"CJK"}):
            home |= company
    return frozenset(home)


def is_foreign(token: str, home: frozenset[str]) -> bool:
    """Whether a token has a letter of a script that does not belong."""
    return not scripts(token) <= home


def foreign_ids(tokens: Sequence[str], home: frozenset[str]) -> frozenset[int]:
    """The ids whose token is foreign. tokens: the vocabulary's texts, by id."""
    return frozenset(id for id, token in enumerate(tokens) if is_foreign(token, home))


def forced_rate(vocab_size: int, endpoint: float = CLOSED_END) -> float:
    """The probability that at least one of a draw's uniforms is exactly 1."""
    return -math.expm1(vocab_size * math.log1p(-endpoint))


@dataclass(frozen=True, slots=True)
class Tally:
    """Foreign words among draws. share: what part of the vocabulary is foreign."""

    draws: int
    foreign: int
    vocab_size: int
    share: float

    def expected(self, endpoint: float = CLOSED_END) -> float:
        """How many foreign draws a sampler with that end point would make."""
        return self.draws * forced_rate(self.vocab_size, endpoint) * self.share

    def fits(self, endpoint: float, chance: float = 1e-6) -> bool:
        """Whether the count is one that such a sampler would give (two-sided Poisson test)."""
        mean = self.expected(endpoint)
        below = _poisson_at_most(self.foreign, mean)
        above = 1.0 - (_poisson_at_most(self.foreign - 1, mean) if self.foreign else 0.0)
        return min(below, above) > chance / 2

    def line(self) -> str:
        """Observed beside theoretical, for people."""
        return (
            f"foreign words: {self.foreign} in {self.draws:,} draws; a sampler with a closed interval would make "
            f"{self.expected():.2f} ({self.share:.2%} of {self.vocab_size:,} tokens are foreign)"
        )


def tally(ids: Iterable[int], foreign: frozenset[int], vocab_size: int) -> Tally:
    """Count drawn ids against the foreign part of a vocabulary."""
    drawn = list(ids)
    return Tally(len(drawn), sum(id in foreign for id in drawn), vocab_size, len(foreign) / vocab_size)


def _poisson_at_most(count: int, mean: float) -> float:
    return min(1.0, math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1)))
