"""Caching is invisible: warm answers are the cold ones, for caches that can be cut and for those that cannot."""

import asyncio
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from engines import Answer, answer, ask, collect, running
from soloist.executor import prefix_cache
from soloist.executor.engine import Engine
from soloist.executor.prefix_cache import PrefixCache
from soloist.executor.prefix_tree import BLOCK
from tiny_models import LLAMA, MAMBA, SLIDING, random_model

HEAD = "The quick brown fox jumps over the lazy dog and again, " * 3
PROMPTS = [
    HEAD + "ALPHA?",
    HEAD + "BRAVO!",
    HEAD + "ALPHA",
    HEAD + "ALPHA?~",
    HEAD[:70],
    "something else",
    HEAD + "ALPHA?",
]
KINDS = {"llama": LLAMA, "sliding": SLIDING, "mamba": MAMBA}


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("m") / request.param, KINDS[request.param])


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("m") / "llama", LLAMA)


async def continued(engine: Engine, prompt: str, **fields: Any) -> Answer:
    return await answer(engine, ask(prompt, 12, **{"temperature": 0} | fields))


async def cold(folder: Path, prompts: list[str]) -> list[list[int]]:
    async with running(folder, prefix_cache_bytes=0) as engine:
        return [(await continued(engine, prompt)).ids for prompt in prompts]


async def test_warm_equals_cold_in_any_order(folder: Path) -> None:
    expected = dict(zip(PROMPTS, await cold(folder, PROMPTS), strict=True))
    async with running(folder, prefill_chunk=40) as engine:
        for prompt in [*PROMPTS, *reversed(PROMPTS), *PROMPTS[1:4]]:
            got = await continued(engine, prompt)
            assert got.ids == expected[prompt]
            assert got.cached < len(prompt)
        repeated = await continued(engine, PROMPTS[0])
    assert repeated.cached == len(PROMPTS[0]) - 1


async def test_a_conversation_that_grows_by_its_own_replies_stays_warm_and_right(folder: Path) -> None:
    turns, replies, cached = HEAD, [], []
    async with running(folder) as engine:
        for _ in range(3):
            got = await continued(engine, turns)
            replies.append(got.ids)
            cached.append(got.cached)
            turns += bytes(i for i in got.ids if i < 128).decode() + " go on "
    async with running(folder, prefix_cache_bytes=0) as engine:
        last = await continued(
            engine, turns.rsplit(bytes(i for i in replies[-1] if i < 128).decode() + " go on ", 1)[0]
        )
    assert last.ids == replies[-1]
    assert cached[1] >= len(HEAD) - 1 and cached[2] > cached[1]


async def test_warm_rows_in_company_equal_cold_ones_alone(folder: Path) -> None:
    expected = await cold(folder, PROMPTS)
    async with running(folder, max_batch=4, prefill_chunk=40) as engine:
        for _ in range(2):
            got = await asyncio.gather(*(continued(engine, prompt) for prompt in PROMPTS))
            assert [a.ids for a in got] == expected


async def test_a_running_rows_prefix_serves_another_before_it_ends(llama: Path) -> None:
    async with running(llama) as engine:
        runner = engine.submit(ask(HEAD + "one", 2000, temperature=0))
        await anext(aiter(runner))
        got = await continued(engine, HEAD + "two")
        assert engine.health().running
        runner.cancel()
    assert got.cached >= len(HEAD)


async def test_requests_that_arrive_together_share_their_cold_prefix(llama: Path) -> None:
    async with running(llama, prefill_chunk=64) as engine:
        got = await asyncio.gather(*(continued(engine, f"{HEAD} number {i}") for i in range(4)))
    assert [a.cached >= len(HEAD) // BLOCK * BLOCK for a in got] == [False, True, True, True]


async def test_choices_fork_from_one_prefill(llama: Path) -> None:
    request = ask(HEAD, 8, seed=3, n=3)
    async with running(llama) as engine:
        first = await collect(engine.submit(request))
        again = await collect(engine.submit(request))
    assert [a.ids for a in first] == [a.ids for a in again]
    assert [a.cached for a in again] == [len(HEAD) - 1] * 3


async def test_the_cache_keeps_its_promise_in_bytes(llama: Path) -> None:
    limit = 400_000
    async with running(llama, prefix_cache_bytes=limit) as engine:
        for i in range(12):
            await continued(engine, f"{i} distinct " * 20)
            assert engine.health().cache_bytes <= limit
        assert engine.health().cache_bytes > 0


@pytest.mark.parametrize("seam", ["restore", "keep_blocks", "keep_whole"])
async def test_a_cache_that_fails_costs_nobody_an_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch, seam: str
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("injected into the cache")

    expected = await cold(folder, PROMPTS)
    async with running(folder, max_batch=4) as engine:
        await continued(engine, PROMPTS[0])
        monkeypatch.setattr(PrefixCache, seam, fail)
        got = await asyncio.gather(*(continued(engine, prompt) for prompt in PROMPTS))
        assert [a.ids for a in got] == expected and engine.health().ready
        monkeypatch.undo()
        assert (await continued(engine, PROMPTS[0])).ids == expected[0]


def lazily_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: entries are kept as they are, evaluated or not."""

    class Lazy:
        def __getattr__(self, name: str) -> Any:
            return (lambda *arrays: None) if name == "eval" else getattr(mx, name)

    monkeypatch.setattr(prefix_cache, "mx", Lazy())


async def entries_are_concrete(llama: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether another thread can touch what the executor keeps."""
    import threading

    kept: list[mx.array] = []
    real = prefix_cache.PrefixTree.insert

    def insert(self: Any, parent: Any, ids: Any, payload: Any, nbytes: int) -> Any:
        kept.extend(payload)
        return real(self, parent, ids, payload, nbytes)

    monkeypatch.setattr(prefix_cache.PrefixTree, "insert", insert)
    verdict: list[bool] = []

    def touch() -> None:
        try:
            mx.eval(mx.sum(kept[-1]))
            verdict.append(True)
        except RuntimeError:
            verdict.append(False)
        finally:
            mx.clear_streams()

    async with running(llama) as engine:
        await continued(engine, HEAD)
    thread = threading.Thread(target=touch)
    thread.start()
    thread.join()
    return verdict[0]


async def test_what_is_kept_is_concrete(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await entries_are_concrete(llama, monkeypatch)


async def test_mutant_a_lazily_kept_entry_is_caught(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lazily_kept(monkeypatch)
    assert not await entries_are_concrete(llama, monkeypatch)


async def test_quantised_keys_and_values_are_served_one_row_at_a_time_and_restored_exactly(tmp_path: Path) -> None:
    wide = {"head_dim": 64, "hidden_size": 64, "num_attention_heads": 1, "num_key_value_heads": 1}
    folder = random_model(tmp_path, LLAMA | wide)
    async with running(folder, kv_bits=8) as engine:
        assert engine.facts and not engine.facts.batched
        first = await asyncio.gather(*(continued(engine, prompt) for prompt in PROMPTS))
        again = [await continued(engine, prompt) for prompt in PROMPTS]
        assert engine.health().last_error is None
    assert [a.ids for a in again] == [a.ids for a in first]
    assert again[0].cached == len(PROMPTS[0]) - 1
