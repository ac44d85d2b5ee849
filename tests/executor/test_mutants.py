"""Deliberate breaks of the executor, each caught by the gate that is meant for it."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from engines import answer, ask, running
from soloist.executor import kv
from soloist.executor.batch import Batch
from soloist.executor.news import News
from soloist.executor.prefix_cache import PrefixCache
from soloist.executor.pulse import Pulse
from soloist.executor.request import Delta
from soloist.executor.rounds import Rounds
from tiny_models import LLAMA, random_model

Gate = Callable[[Path, pytest.MonkeyPatch], Awaitable[bool]]
MARK = 122
PATIENCE_S = 3.0


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("m") / "llama", LLAMA)


async def one_row_fails_alone(llama: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A step raises for one of four rows: it gets a failure, the others their own tokens, the thread lives."""
    real = Batch._launch

    def launch(self: Batch) -> Any:
        if any(row.ids[0] == MARK and len(row.generated) == 3 for row in self.rows):
            raise RuntimeError("injected")
        return real(self)

    requests = [ask(prompt, 10, seed=i) for i, prompt in enumerate(["one", "two", "z", "four"])]
    async with running(llama) as engine:
        alone = [await answer(engine, request) for request in requests]
        monkeypatch.setattr(Batch, "_launch", launch)
        try:
            async with asyncio.timeout(PATIENCE_S):
                got = await asyncio.gather(*(answer(engine, request) for request in requests))
        except TimeoutError:
            return False
        others = [i for i in range(4) if i != 2]
        same = [got[i].ids for i in others] == [alone[i].ids for i in others]
        return same and got[2].failure is not None and engine.health().generation == 1


async def a_leaving_client_changes_nobody(llama: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """One of three rows is cancelled while steps run; the other two get the tokens that they get alone."""
    requests = [ask(prompt, 30, seed=i) for i, prompt in enumerate(["one", "two", "three"])]
    async with running(llama) as engine:
        alone = [await answer(engine, request) for request in requests[1:]]
        leaving = engine.submit(ask("leaving", 1000, seed=9))
        async for event in leaving:
            if isinstance(event, Delta):
                break
        staying = [asyncio.create_task(answer(engine, request)) for request in requests[1:]]
        while engine.health().running < 3:
            await asyncio.sleep(0.001)
        leaving.cancel()
        try:
            async with asyncio.timeout(PATIENCE_S):
                return [a.ids for a in await asyncio.gather(*staying)] == [a.ids for a in alone]
        except TimeoutError:
            return False


async def a_hang_is_noticed(llama: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A step that does not return turns health red within its bound."""
    release = threading.Event()
    real = Batch.step
    async with running(llama, stall_after=0.3) as engine:
        monkeypatch.setattr(Batch, "step", lambda self: release.wait(10) and real(self))
        engine.submit(ask(max_tokens=3))
        end = time.monotonic() + 1.5
        while engine.health().ready and time.monotonic() < end:
            await asyncio.sleep(0.02)
        noticed = not engine.health().ready
        release.set()
    return noticed


def exception_escapes_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(self: Rounds, undisturbed: bool) -> None:
        for batch in self.cohorts.batches:
            self.news.outbox += batch.step()

    monkeypatch.setattr(Rounds, "_decode", decode)


def exception_skips_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(News, "fail", lambda self, row, *reason: setattr(row, "ended", True))


def culprit_is_whoever_came_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from soloist.executor import rounds

    def blame(suspects: Any, *rest: Any) -> Any:
        return list(suspects[1:]), [(suspects[0], RuntimeError("blamed"))]

    monkeypatch.setattr(rounds, "put_rows_on_trial", blame)


def rewound_rows_draw_with_new_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    from soloist.executor.sequence import Sequence

    monkeypatch.setattr(Sequence, "rewind", lambda self: setattr(self, "launched", len(self.generated) + 1))


def the_wrong_rows_caches_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a row's slot is freed at disconnect while a step still counts on it: the rows behind it move up."""
    real = kv.keep
    monkeypatch.setattr(kv, "keep", lambda batch, indices: real(batch, range(len(indices))))


def heartbeat_from_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Pulse, "last_tick", property(lambda self: time.monotonic(), lambda self, value: None), raising=False
    )


def an_idle_flag_that_never_clears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pulse, "wake", Pulse.rest)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Gate]] = [
    (exception_escapes_the_loop, one_row_fails_alone),
    (exception_skips_the_sink, one_row_fails_alone),
    (culprit_is_whoever_came_first, one_row_fails_alone),
    (rewound_rows_draw_with_new_keys, one_row_fails_alone),
    (the_wrong_rows_caches_are_released, a_leaving_client_changes_nobody),
    (heartbeat_from_a_timer, a_hang_is_noticed),
    (an_idle_flag_that_never_clears, a_hang_is_noticed),
]


@pytest.mark.parametrize("gate", sorted({gate for _, gate in MUTANTS}, key=str), ids=lambda gate: gate.__name__)
async def test_the_real_executor_passes(llama: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    assert await gate(llama, monkeypatch)


@pytest.mark.parametrize(("mutant", "gate"), MUTANTS, ids=lambda function: function.__name__)
async def test_the_mutant_is_caught(
    llama: Path, monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None], gate: Gate
) -> None:
    mutant(monkeypatch)
    assert not await gate(llama, monkeypatch)


async def test_mutant_a_cache_that_shortens_a_state_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recurrent state restored for fewer ids than it has seen."""
    from tiny_models import MAMBA

    folder = random_model(tmp_path / "mamba", MAMBA)
    long, short = "the same beginning, and then more of it", "the same beginning"
    async with running(folder, prefix_cache_bytes=0) as engine:
        cold = await answer(engine, ask(short, 12, temperature=0))
    real = PrefixCache.restore

    def restore(self: PrefixCache, identity: bytes, ids: Any) -> Any:
        layers, length = real(self, identity, [*long.encode()])
        return layers, min(length, len(ids) - 1)

    async with running(folder) as engine:
        await answer(engine, ask(long, 1, temperature=0))
        assert (await answer(engine, ask(short, 12, temperature=0))).ids == cold.ids
        monkeypatch.setattr(PrefixCache, "restore", restore)
        assert (await answer(engine, ask(short, 12, temperature=0))).ids != cold.ids
