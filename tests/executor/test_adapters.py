"""Adapters in the loop: rows of one batch with and without, loaded and unloaded while others run."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from adapter_files import VALUE, draw, layered, weights_of, write_mlx
from engines import Answer, answer, ask, collect, running
from soloist.executor.adapters import Adapters
from soloist.executor.engine import Engine
from soloist.executor.errors import AdapterRefused, ModelLoadError
from soloist.executor.rounds import Rounds
from tiny_models import LLAMA, random_model

PROMPT = "The quick brown fox jumps over the lazy dog and again, " * 2


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("m") / "llama", LLAMA)


@pytest.fixture(scope="module")
def adapters(llama: Path) -> dict[str, Path]:
    weights = weights_of(llama)
    factors = {name: draw(weights, layered(VALUE), seed=seed) for name, seed in (("one", 1), ("two", 2))}
    return {name: write_mlx(llama.parent / name, factor) for name, factor in factors.items()}


async def greedy(engine: Engine, adapter: str | None = None, prompt: str = PROMPT, count: int = 12) -> Answer:
    return await answer(engine, ask(prompt, count, temperature=0, adapter=adapter))


@pytest.fixture
async def alone(llama: Path, adapters: dict[str, Path]) -> dict[str | None, list[int]]:
    """Each by itself, in an engine that has nothing else and no cache."""
    ids: dict[str | None, list[int]] = {}
    for name in (None, *adapters):
        chosen = ((name, adapters[name]),) if name else ()
        async with running(llama, adapters=chosen, prefix_cache_bytes=0) as engine:
            ids[name] = (await greedy(engine, name)).ids
    assert len({tuple(value) for value in ids.values()}) == 3
    return ids


def all_of(adapters: dict[str, Path]) -> tuple[tuple[str, Path], ...]:
    return tuple(adapters.items())


async def test_rows_with_different_adapters_share_a_batch(
    llama: Path, adapters: dict[str, Path], alone: dict[str | None, list[int]]
) -> None:
    names = [None, "one", "two", "one", None, "two"]
    async with running(llama, adapters=all_of(adapters)) as engine:
        got = await asyncio.gather(*(greedy(engine, name) for name in names))
    assert [a.ids for a in got] == [alone[name] for name in names]


async def no_adapter_reuses_anothers_prefix(
    llama: Path, adapters: dict[str, Path], alone: dict[str | None, list[int]]
) -> bool:
    async with running(llama, adapters=all_of(adapters)) as engine:
        first = [await greedy(engine, name) for name in ("one", "two", None)]
        again = [await greedy(engine, name) for name in ("one", "two", None)]
    expected = [alone[name] for name in ("one", "two", None)]
    right = [a.ids for a in first] == expected == [a.ids for a in again]
    return right and [a.cached for a in first] == [0, 0, 0] and all(a.cached for a in again)


async def test_no_adapter_reuses_anothers_prefix(
    llama: Path, adapters: dict[str, Path], alone: dict[str | None, list[int]]
) -> None:
    assert await no_adapter_reuses_anothers_prefix(llama, adapters, alone)


async def test_mutant_a_cache_key_without_the_adapter_is_caught(
    llama: Path, adapters: dict[str, Path], alone: dict[str | None, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Adapters, "identity", lambda self, row: b"")
    assert not await no_adapter_reuses_anothers_prefix(llama, adapters, alone)


async def test_an_adapter_is_loaded_and_unloaded_while_others_run(
    llama: Path, adapters: dict[str, Path], alone: dict[str | None, list[int]]
) -> None:
    async with running(llama) as engine:
        base = asyncio.create_task(greedy(engine, count=60))
        info = await engine.load_adapter("one", str(adapters["one"]))
        assert (info.name, info.rank, info.factor) == ("one", 4, 2.0)
        user = engine.submit(ask(PROMPT, 12, temperature=0, adapter="one"))
        await engine.unload_adapter("one")
        (got,) = await collect(user)
        assert got.ids == alone["one"] or (got.failure and got.failure.kind == "invalid")
        late = await greedy(engine, "one")
        assert late.failure and late.failure.kind == "invalid" and "one" in late.failure.message
        assert (await base).ids[:12] == alone[None]


async def test_an_adapter_in_use_is_not_freed(
    llama: Path, adapters: dict[str, Path], alone: dict[str | None, list[int]]
) -> None:
    async with running(llama, adapters=all_of(adapters)) as engine:
        user = engine.submit(ask(PROMPT, 12, temperature=0, adapter="one"))
        first = await anext(aiter(user))
        await engine.unload_adapter("one")
        (rest,) = await collect(user)
    assert [*getattr(first, "ids", ()), *rest.ids] == alone["one"]


async def test_the_same_name_with_other_weights_is_another_adapter(
    llama: Path, adapters: dict[str, Path], alone: dict[str | None, list[int]]
) -> None:
    async with running(llama) as engine:
        await engine.load_adapter("name", str(adapters["one"]))
        assert (await greedy(engine, "name")).ids == alone["one"]
        await engine.unload_adapter("name")
        await engine.load_adapter("name", str(adapters["two"]))
        got = await greedy(engine, "name")
    assert (got.ids, got.cached) == (alone["two"], 0)


async def test_a_refused_adapter_leaves_everything_as_it_was(llama: Path, adapters: dict[str, Path]) -> None:
    async with running(llama, adapters=(("one", adapters["one"]),)) as engine:
        before = await greedy(engine, "one")
        for name, path in (("one", adapters["two"]), ("new", llama)):
            with pytest.raises(AdapterRefused):
                await engine.load_adapter(name, str(path))
        with pytest.raises(AdapterRefused, match="ghost"):
            await engine.unload_adapter("ghost")
        assert list(engine.adapters) == ["one"]
        assert (await greedy(engine, "one")).ids == before.ids


async def test_a_bad_adapter_at_the_start_ends_it_with_its_name(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"adapter wrong .*nowhere"):
        async with running(llama, adapters=(("wrong", tmp_path / "nowhere"),)):
            pass


async def test_adapters_survive_the_death_of_the_thread(
    llama: Path, adapters: dict[str, Path], alone: dict[str | None, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, fuse = Rounds.turn, [True]

    def turn(self: Any) -> None:
        if self.cohorts.rows and fuse:
            fuse.clear()
            raise SystemError("injected death")
        real(self)

    async with running(llama, adapters=all_of(adapters)) as engine:
        monkeypatch.setattr(Rounds, "turn", turn)
        got = await greedy(engine, "one")
        assert got.failure
        while not engine.health().ready:
            await asyncio.sleep(0.01)
        assert (await greedy(engine, "one")).ids == alone["one"]
        await engine.unload_adapter("one")
        assert list(engine.adapters) == ["two"]
