"""What the executor counts of its own work: waits, prefills, decode steps, memory of rows."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from engines import ask, collect, running
from soloist.executor.tally import Tally
from tiny_models import random_model


def test_a_value_belongs_to_the_first_bound_that_it_does_not_exceed() -> None:
    tally = Tally(1, 2, 4)
    for value in (0, 1, 1.5, 2, 4, 5, 100):
        tally.add(value)
    assert tally.read() == [2, 4, 5, 7] and tally.total == 113.5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("models") / "random")


async def test_every_prompt_and_every_step_is_counted_once(folder: Path) -> None:
    async with running(folder, max_batch=2, prefix_cache_bytes=0) as engine:
        requests = [replace(ask("x" * 41, max_tokens=5), end_ids=frozenset()) for _ in range(3)]
        await asyncio.gather(*(collect(engine.submit(request)) for request in requests))
        tallies = engine.tallies
        assert tallies.queue_seconds.read()[-1] == 3
        assert tallies.prefill_tokens.total == 3 * 40
        assert tallies.prefill_seconds.read()[-1] == tallies.prefill_tokens.read()[-1]
        assert tallies.decode_rows.total == 3 * 5
        assert tallies.decode_rows.read()[1] == tallies.decode_rows.read()[-1], "never more than two rows"


async def test_rows_in_decode_hold_keys_and_values(folder: Path) -> None:
    async with running(folder) as engine:
        stream = engine.submit(replace(ask("x" * 100, max_tokens=2000), end_ids=frozenset()))
        async for event in stream:
            if getattr(event, "ids", ()):
                break
        assert engine.health().kv_bytes > 100 * engine._life.facts.token_bytes > 0  # type: ignore[union-attr]
        stream.cancel()
        while engine.health().running:
            await asyncio.sleep(0.01)
        assert engine.health().kv_bytes == 0
