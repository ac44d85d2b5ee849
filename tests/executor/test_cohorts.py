"""Rows of very different lengths decode apart, and draw what they draw alone."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engines import answer, ask, running
from soloist.executor.batch import Batch
from soloist.executor.cohorts import Cohorts
from soloist.executor.request import Request
from tiny_models import LLAMA, random_model

LENGTHS = (10, 300, 12, 310, 11)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("m") / "llama", LLAMA)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches there were after each join; weights count as light as 200 ids, so that 300 part from 10."""
    seen: list[int] = []
    begin, place = Cohorts.__init__, Cohorts.place

    def light(self: Cohorts, model: Any, on_leave: Any) -> None:
        begin(self, model, on_leave)
        self.model = replace(model, facts=replace(model.facts, weights_bytes=200 * model.facts.token_bytes))

    def counted(self: Cohorts, rows: Any) -> Batch:
        batch = place(self, rows)
        seen.append(len(self.batches))
        return batch

    monkeypatch.setattr(Cohorts, "__init__", light)
    monkeypatch.setattr(Cohorts, "place", counted)
    return seen


def requests() -> list[Request]:
    return [ask("y" * length, 20, seed=length) for length in LENGTHS]


async def test_rows_of_different_lengths_draw_what_they_draw_alone(llama: Path, counts: list[int]) -> None:
    async with running(llama) as engine:
        alone = [await answer(engine, request) for request in requests()]
        counts.clear()
        together = await asyncio.gather(*(answer(engine, request) for request in requests()))
    assert [a.ids for a in together] == [a.ids for a in alone]
    assert max(counts) == 2, "short rows and long ones"


async def test_rows_that_differ_by_less_than_the_weights_share_a_batch(llama: Path) -> None:
    async with running(llama) as engine:
        assert engine.facts and engine.facts.weights_bytes > max(LENGTHS) * engine.facts.token_bytes
        await asyncio.gather(*(answer(engine, request) for request in requests()))


async def test_a_step_that_breaks_in_one_batch_does_not_touch_the_other(
    llama: Path, counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Batch._launch

    def launch(self: Batch) -> Any:
        if any(len(row.request.ids) == 310 and len(row.generated) == 3 for row in self.rows):
            raise RuntimeError("injected")
        return real(self)

    async with running(llama) as engine:
        alone = [await answer(engine, request) for request in requests()]
        monkeypatch.setattr(Batch, "_launch", launch)
        got = await asyncio.gather(*(answer(engine, request) for request in requests()))
    assert [bool(a.failure) for a in got] == [length == 310 for length in LENGTHS]
    assert [a.ids for a in got if not a.failure] == [a.ids for a in alone if len(a.ids) and a is not alone[3]]
