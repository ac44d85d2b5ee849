"""Faults injected at every seam: the culprit alone fails, its neighbours' tokens are those of the faultless run."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engines import Answer, answer, ask, collect, running
from soloist.executor import batch as batch_room
from soloist.executor import deltas as deltas_room
from soloist.executor import kv
from soloist.executor.batch import Batch
from soloist.executor.engine import Engine
from soloist.executor.errors import Refused
from soloist.executor.model import LoadedModel
from soloist.executor.prefill import Prefill
from soloist.executor.request import Request
from soloist.executor.rounds import Rounds
from tiny_models import LLAMA, random_model, scripted

MARK = 122  # the culprit's prompt begins with "z"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("m") / "llama", LLAMA)


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripted(tmp_path_factory.mktemp("m") / "endless", ["k", "l"], after_last="k", context=200_000)


def crowd() -> list[Request]:
    """Twelve requests for eight rows; the culprit is the fifth to come."""
    prompts = [f"{i} prompt " * (i % 4 + 1) for i in range(12)]
    prompts[4] = "z" + prompts[4]
    return [ask(prompt, 12 + i, seed=i) for i, prompt in enumerate(prompts)]


async def serve(engine: Engine, requests: list[Request]) -> list[Answer]:
    return await asyncio.gather(*(answer(engine, request) for request in requests))


def fail_in_prefill(monkeypatch: pytest.MonkeyPatch) -> None:
    real = LoadedModel.forward

    def forward(self: LoadedModel, ids: Any, layers: Any, slots: Any) -> Any:
        if ids.shape[1] > 1 and MARK in ids[:, 0].tolist():
            raise RuntimeError("injected into prefill")
        return real(self, ids, layers, slots)

    monkeypatch.setattr(LoadedModel, "forward", forward)


def fail_in_join(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Batch.join

    def join(self: Batch, rows: Any, layers: Any) -> None:
        if any(row.ids[0] == MARK for row in rows):
            raise RuntimeError("injected into join")
        real(self, rows, layers)

    monkeypatch.setattr(Batch, "join", join)


def fail_in_extend(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half of the layers extended: the batch's caches no longer agree with each other."""
    real_join, real_extend = Batch.join, kv.extend
    culprit_joins = threading.local()

    def join(self: Batch, rows: Any, layers: Any) -> None:
        culprit_joins.value = any(row.ids[0] == MARK for row in rows)
        real_join(self, rows, layers)

    def extend(batch: Any, joining: Any) -> None:
        if culprit_joins.value:
            real_extend(batch[:2], joining[:2])
            raise RuntimeError("injected into extend")
        real_extend(batch, joining)

    monkeypatch.setattr(Batch, "join", join)
    monkeypatch.setattr(kv, "extend", extend)


def fail_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the caches have moved: the whole step's state is lost."""
    real = Batch._launch

    def launch(self: Batch) -> Any:
        flight = real(self)
        if any(row.ids[0] == MARK and len(row.generated) >= 5 for row in self.rows):
            raise RuntimeError("injected into the step")
        return flight

    monkeypatch.setattr(Batch, "_launch", launch)


def fail_in_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    real_launch, real_sample = Batch._launch, batch_room.sample
    culprit_present = threading.local()

    def launch(self: Batch) -> Any:
        culprit_present.value = any(row.ids[0] == MARK and len(row.generated) >= 3 for row in self.rows)
        return real_launch(self)

    def sample(*args: Any, **kwargs: Any) -> Any:
        if culprit_present.value:
            raise RuntimeError("injected into the sampler")
        return real_sample(*args, **kwargs)

    monkeypatch.setattr(Batch, "_launch", launch)
    monkeypatch.setattr(batch_room, "sample", sample)


def fail_in_reading_back(monkeypatch: pytest.MonkeyPatch) -> None:
    real = deltas_room.deltas_of

    def deltas_of(rows: Any, sampled: Any) -> Any:
        if any(row.ids[0] == MARK and len(row.generated) >= 4 for row in rows):
            raise RuntimeError("injected into reading back")
        return real(rows, sampled)

    monkeypatch.setattr(batch_room, "deltas_of", deltas_of)


SEAMS = [fail_in_prefill, fail_in_join, fail_in_extend, fail_in_step, fail_in_sampling, fail_in_reading_back]


@pytest.mark.parametrize("inject", SEAMS, ids=lambda inject: inject.__name__)
async def test_only_the_culprit_fails(
    llama: Path, monkeypatch: pytest.MonkeyPatch, inject: Callable[[pytest.MonkeyPatch], None]
) -> None:
    requests = crowd()
    async with running(llama, max_batch=8, prefill_chunk=64, prefix_cache_bytes=0) as engine:
        faultless = await serve(engine, requests)
        inject(monkeypatch)
        faulty = await serve(engine, requests)
        assert engine.health().ready and engine.health().generation == 1
        assert "injected" in (engine.health().last_error or "")
    assert [a.failure.kind for a in faulty if a.failure] == ["executor_failed"]
    assert faulty[4].failure
    assert [a.ids for i, a in enumerate(faulty) if i != 4] == [a.ids for i, a in enumerate(faultless) if i != 4]


@pytest.mark.parametrize("seam", ["forward", "join"])
async def test_prompts_that_fail_only_in_company_are_read_apart(
    llama: Path, monkeypatch: pytest.MonkeyPatch, seam: str
) -> None:
    forward, join, struck = LoadedModel.forward, Batch.join, []

    def company_forward(self: LoadedModel, ids: Any, layers: Any, slots: Any) -> Any:
        if ids.shape[0] > 1 and ids.shape[1] > 1:
            struck.append(seam)
            raise RuntimeError("injected into company")
        return forward(self, ids, layers, slots)

    def company_join(self: Batch, rows: Any, layers: Any) -> None:
        if len(rows) > 1:
            struck.append(seam)
            raise RuntimeError("injected into company")
        join(self, rows, layers)

    async with running(llama, prefix_cache_bytes=0) as engine:
        faultless = await serve(engine, crowd())
        if seam == "forward":
            monkeypatch.setattr(LoadedModel, "forward", company_forward)
        else:
            monkeypatch.setattr(Batch, "join", company_join)
        assert [a.ids for a in await serve(engine, crowd())] == [a.ids for a in faultless]
    assert struck, "short prompts that come together are read together"


async def test_a_fault_without_a_culprit_fails_nobody(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, fuse = Batch._launch, [20]

    def launch(self: Batch) -> Any:
        fuse[0] -= 1
        if fuse[0] == 0:
            raise RuntimeError("injected once")
        return real(self)

    requests = crowd()
    async with running(llama, max_batch=8) as engine:
        faultless = await serve(engine, requests)
        monkeypatch.setattr(Batch, "_launch", launch)
        assert [a.ids for a in await serve(engine, requests)] == [a.ids for a in faultless]


async def test_a_dead_thread_is_replaced_and_says_so(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, fuse = Rounds.turn, [True]

    def turn(self: Rounds) -> None:
        if fuse:
            fuse.clear()
            raise SystemError("injected death")
        real(self)

    request = ask("hello", 6, seed=5)
    async with running(llama) as engine:
        before = await answer(engine, request)
        monkeypatch.setattr(Rounds, "turn", turn)
        got = await answer(engine, ask("hello"))
        assert got.failure and got.failure.kind == "executor_failed"
        await until(lambda: engine.health().ready)
        health = engine.health()
        assert health.generation == 2 and "injected death" in (health.last_error or "")
        assert (await answer(engine, request)).ids == before.ids


def die(self: Rounds) -> None:
    raise SystemError("injected death")


async def test_a_thread_that_keeps_dying_stays_red(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(llama, respawns=0) as engine:
        monkeypatch.setattr(Rounds, "turn", die)
        await answer(engine, ask())
        health = engine.health()
        assert health.state == "failed" and "injected death" in (health.reason or "")
        with pytest.raises(Refused) as refusal:
            engine.submit(ask())
        assert refusal.value.kind == "dead" and refusal.value.retry_after_s is None


async def test_a_hung_step_turns_health_red_and_ends_its_requests(
    endless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, stalls = threading.Event(), []
    real = Batch.step

    def step(self: Batch) -> Any:
        release.wait(20)
        return real(self)

    async with running(endless, stall_after=0.3) as engine:
        engine._on_stall = lambda: stalls.append(engine.health().state)
        monkeypatch.setattr(Batch, "step", step)
        begun = time.monotonic()
        got = await answer(engine, ask(max_tokens=50))
        assert got.failure and got.failure.kind == "executor_failed" and time.monotonic() - begun < 5
        assert engine.health().state == "stalled" and stalls == ["stalled"]
        with pytest.raises(Refused):
            engine.submit(ask())
        release.set()
        await until(lambda: engine.health().ready)
        assert (await answer(engine, ask(max_tokens=2, temperature=0))).text == "kl"


async def test_an_idle_executor_is_not_stale(endless: Path) -> None:
    async with running(endless, stall_after=0.2) as engine:
        await asyncio.sleep(0.6)
        assert engine.health().ready


async def test_a_long_prefill_is_busy_not_dead(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Prefill.advance

    def slow(self: Prefill, network: Any, chunk: int) -> int:
        time.sleep(0.1)
        return real(self, network, chunk)

    states = []
    async with running(llama, stall_after=0.4, prefill_chunk=16) as engine:
        monkeypatch.setattr(Prefill, "advance", slow)
        stream = engine.submit(ask("y" * 200, 1))
        async for _ in stream:
            states.append(engine.health().state)
    assert set(states) == {"ready"} and len(states) > 5


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.01)


async def test_choices_fork_again_after_a_fault(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, fuse = Batch._launch, [6]

    def launch(self: Batch) -> Any:
        fuse[0] -= 1
        if fuse[0] == 0:
            raise RuntimeError("injected once")
        return real(self)

    request = ask("fork", 12, seed=4, n=3)
    async with running(llama) as engine:
        faultless = await collect(engine.submit(request))
        monkeypatch.setattr(Batch, "_launch", launch)
        again = await collect(engine.submit(request))
    assert [a.ids for a in again] == [a.ids for a in faultless]


async def test_a_step_that_always_fails_in_company_ends_its_rows_and_not_the_server(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Batch._launch

    def launch(self: Batch) -> Any:
        if len(self.rows) > 1:
            raise RuntimeError("injected: two are too many")
        return real(self)

    requests = [ask(f"{i} prompt", 12, seed=i) for i in range(2)]
    async with running(llama) as engine:
        monkeypatch.setattr(Batch, "_launch", launch)
        got = await serve(engine, requests)
        assert any(a.failure for a in got) and engine.health().ready
        assert (await answer(engine, ask("later", 3))).finish == "length"
