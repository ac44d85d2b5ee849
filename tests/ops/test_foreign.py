"""The detector of foreign words: what has a script, what belongs, and the theory of a closed interval."""

import pytest
from soloist.ops.foreign import Tally, forced_rate, home_scripts, is_foreign, script, scripts, tally


@pytest.mark.parametrize(
    ("character", "found"),
    [
        ("a", "LATIN"),
        ("é", "LATIN"),
        ("б", "CYRILLIC"),
        ("中", "CJK"),
        ("ｶ", "KATAKANA"),
        ("م", "ARABIC"),
        ("ไ", "THAI"),
    ],
)
def test_letters_have_the_script_of_their_name(character: str, found: str) -> None:
    assert script(character) == found


def test_what_is_no_letter_has_no_script() -> None:
    assert not scripts(" 0.5% -> \n\t!?«»—…→∑🙂\u0301\ufffdµ𝐱²")


def test_a_word_is_foreign_only_where_its_script_does_not_belong() -> None:
    english, russian, japanese = map(home_scripts, ("Hello there", "Привет", "こんにちは"))
    assert is_foreign("привет", english) and not is_foreign(" hello", english)
    assert not is_foreign("привет", russian) and not is_foreign("GPU", russian) and is_foreign("مرحبا", russian)
    assert not is_foreign("日本", japanese) and is_foreign("日本", english)


def test_a_closed_end_point_forces_one_token_in_221_at_qwens_vocabulary() -> None:
    assert round(1 / forced_rate(151_936)) == 221


def test_a_tally_is_judged_by_the_rate_that_theory_gives() -> None:
    assert Tally(100_000, 0, 151_936, 0.25).expected() == pytest.approx(113, rel=0.01)
    assert Tally(100_000, 110, 151_936, 0.25).fits(2**-25)
    assert not Tally(100_000, 0, 151_936, 0.25).fits(2**-25)
    assert not Tally(100_000, 400, 151_936, 0.25).fits(2**-25)


def test_a_tally_counts_drawn_ids() -> None:
    counted = tally([1, 2, 3, 3], frozenset({3}), 10)
    assert (counted.draws, counted.foreign, counted.share) == (4, 2, 0.1)
    assert "2 in 4 draws" in counted.line()
