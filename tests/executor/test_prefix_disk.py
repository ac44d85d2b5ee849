"""Prefixes that outlive the process: restored exactly, and never an error when a file is damaged."""

from pathlib import Path

import pytest
from engines import answer, ask, running
from soloist.executor.prefix_tree import BLOCK
from tiny_models import LLAMA, random_model

PROMPT = "The quick brown fox jumps over the lazy dog and again, " * 4


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("m") / "llama", LLAMA)


async def once(llama: Path, cache: Path, **settings: int) -> tuple[list[int], int]:
    """Ids of a greedy answer in a fresh engine, and how many prompt ids it did not have to prefill."""
    async with running(llama, cache_dir=cache, **settings) as engine:
        got = await answer(engine, ask(PROMPT, 12, temperature=0))
        assert engine.health().last_error is None
    return got.ids, got.cached


def files(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.safetensors"))


async def test_a_prefix_survives_a_restart(llama: Path, tmp_path: Path) -> None:
    cold, none = await once(llama, tmp_path)
    warm, cached = await once(llama, tmp_path)
    assert warm == cold and none == 0
    assert cached == (len(PROMPT) - 1) // BLOCK * BLOCK


@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "gone"])
async def test_a_damaged_file_is_a_miss(llama: Path, tmp_path: Path, damage: str) -> None:
    cold, _ = await once(llama, tmp_path)
    for path in files(tmp_path):
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        match damage:
            case "flipped":
                path.write_bytes(data)
            case "truncated":
                path.write_bytes(data[: len(data) // 2])
            case "empty":
                path.write_bytes(b"")
            case "gone":
                path.unlink()
    again, cached = await once(llama, tmp_path)
    assert (again, cached) == (cold, 0)
    assert (await once(llama, tmp_path))[1] > 0, "it was written again"


async def test_another_models_blocks_are_not_used(llama: Path, tmp_path: Path) -> None:
    await once(llama, tmp_path / "cache")
    other = random_model(tmp_path / "other", LLAMA, seed=1)
    _, cached = await once(other, tmp_path / "cache")
    assert cached == 0


async def test_the_folder_stays_within_its_limit(llama: Path, tmp_path: Path) -> None:
    await once(llama, tmp_path)
    block = files(tmp_path)[0].stat().st_size
    small = tmp_path / "small"
    await once(llama, small, cache_dir_bytes=2 * block)
    assert 0 < sum(path.stat().st_size for path in files(small)) <= 2 * block
