"""Rows that must spell something: masked draws, their end, and a grammar that breaks, beside rows without one."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines import answer, ask, running
from tiny_models import ABCD, scripted

WORDS = 10  # 320 ids in packed bits


@dataclass
class Spelling:
    """A grammar of one word; `breaks` is the place at which its matcher raises."""

    word: bytes
    breaks: int | None = None
    at: int = 0
    hurried: bool = False

    def matcher(self) -> "Spelling":
        return Spelling(self.word, self.breaks)

    def copy(self) -> "Spelling":
        return Spelling(self.word, self.breaks, self.at)

    def mask(self) -> Any:
        if self.at == self.breaks:
            raise RuntimeError("the grammar broke")
        mask = np.zeros(WORDS, np.uint32)
        token = self.word[self.at]
        mask[token // 32] = 1 << (token % 32)
        return mask

    def accept(self, token: int) -> bool:
        assert token == self.word[self.at]
        self.at += 1
        return self.at == len(self.word)


@pytest.fixture(scope="module")
def dice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripted(tmp_path_factory.mktemp("m") / "dice", dist=ABCD)


async def test_a_row_spells_what_its_grammar_allows_and_ends_with_it(dice: Path) -> None:
    async with running(dice) as engine:
        got = await answer(engine, ask(max_tokens=50, grammar=Spelling(b"ddccbbaa xyz")))
    assert (got.text, got.finish) == ("ddccbbaa xyz", "stop")


async def test_a_word_that_is_cut_short_ends_by_length(dice: Path) -> None:
    async with running(dice) as engine:
        got = await answer(engine, ask(max_tokens=3, grammar=Spelling(b"abcdef")))
    assert (got.text, got.finish) == ("abc", "length")


async def test_neighbours_of_a_masked_row_draw_what_they_draw_alone(dice: Path) -> None:
    async with running(dice) as engine:
        alone = [await answer(engine, ask(max_tokens=40, seed=seed)) for seed in range(3)]
        together = await asyncio.gather(
            *(answer(engine, ask(max_tokens=40, seed=seed)) for seed in range(3)),
            answer(engine, ask(max_tokens=40, grammar=Spelling(b"abcd" * 5))),
        )
    assert [a.ids for a in together[:3]] == [a.ids for a in alone]
    assert together[3].text == "abcd" * 5


async def test_a_grammar_that_breaks_ends_its_own_row_only(dice: Path) -> None:
    async with running(dice) as engine:
        alone = await answer(engine, ask(max_tokens=40, seed=1))
        neighbour, culprit = await asyncio.gather(
            answer(engine, ask(max_tokens=40, seed=1)),
            answer(engine, ask(max_tokens=40, grammar=Spelling(b"abcdefgh", breaks=4))),
        )
        assert engine.health().ready and engine.health().generation == 1
    assert culprit.failure and culprit.failure.kind == "executor_failed" and culprit.text == "abcd"
    assert neighbour.ids == alone.ids
