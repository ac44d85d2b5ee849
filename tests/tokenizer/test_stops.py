"""Stop strings against an oracle that sees the whole text at once."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from soloist.tokenizer.stops import StopFilter

ABC = st.text("abc", max_size=24)


def oracle(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The first match by where it begins, the shorter of two that begin together."""
    found = [(text.find(stop), len(stop), stop) for stop in stops if stop in text]
    return (text[: min(found)[0]], min(found)[2]) if found else (text, None)


def run(pieces: Sequence[str], stops: Sequence[str]) -> tuple[str, str | None]:
    filtered = StopFilter(stops)
    shown = "".join(filtered.push(piece) for piece in pieces)
    return shown + filtered.finish(), filtered.matched


@given(st.lists(ABC, max_size=8), st.lists(st.text("abc", min_size=1, max_size=5), max_size=4))
def test_any_split_of_a_text_is_cut_where_the_whole_text_would_be(pieces: list[str], stops: list[str]) -> None:
    assert run(pieces, stops) == oracle("".join(pieces), stops)


@given(ABC, st.text("abc", min_size=1, max_size=5))
def test_only_a_proper_beginning_of_the_stop_is_held_back(text: str, stop: str) -> None:
    filtered, shown = StopFilter([stop]), ""
    for character in text:
        shown += filtered.push(character)
    held = text[len(shown) :]
    assert filtered.matched or held == max((stop[:k] for k in range(len(stop)) if text.endswith(stop[:k])), key=len)


@pytest.mark.parametrize(
    ("stops", "shown", "matched"),
    [
        (["own fox"], "The quick br", "own fox"),
        (["own foxes"], "The quick brown fox end", None),
        (["fox e", "own"], "The quick br", "own"),
        (["The quick brown fox end!"], "The quick brown fox end", None),
    ],
)
def test_a_stop_is_found_across_pieces_and_what_never_completes_is_given_back(
    stops: list[str], shown: str, matched: str | None
) -> None:
    assert run(["The quick br", "own f", "ox", " end"], stops) == (shown, matched)


def test_text_after_a_stop_is_dropped() -> None:
    filtered = StopFilter(["x"])
    assert [filtered.push("axb"), filtered.push("c"), filtered.finish()] == ["a", "", ""]


def match_on_ids(pieces: Sequence[str], stop: str, vocabulary: Sequence[str]) -> str:
    """The mutant: the stop is cut into pieces of the vocabulary and these are looked for."""
    wanted, rest = [], stop
    while rest:
        piece = max((p for p in vocabulary if rest.startswith(p)), key=len, default=rest[0])
        wanted.append(piece)
        rest = rest[len(piece) :]
    for at in range(len(pieces)):
        if list(pieces[at : at + len(wanted)]) == wanted:
            return "".join(pieces[:at])
    return "".join(pieces)


class Forgetful(StopFilter):
    """The mutant: what was held back is lost at the end."""

    def finish(self) -> str:
        return ""


def test_the_mutants_are_caught() -> None:
    pieces = ["The quick br", "own f", "ox", " end"]
    assert match_on_ids(pieces, "brown", [*pieces, "brown"]) != oracle("".join(pieces), ["brown"])[0]
    forgetful = Forgetful(["end of it"])
    assert "".join(map(forgetful.push, pieces)) + forgetful.finish() != "".join(pieces)
