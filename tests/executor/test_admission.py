"""What would not fit is refused before it is prefilled, with the bytes in the message."""

import re
from pathlib import Path

import pytest
from engines import answer, ask, running
from soloist.executor.errors import Refused
from tiny_models import LLAMA, MAMBA, SLIDING, random_model

TOKEN_BYTES = 4 * 2 * 2 * 16 * 4  # layers, keys and values, heads, width, float32


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("m") / "llama", LLAMA)


async def test_the_cost_of_a_token_is_that_of_the_models_own_caches(llama: Path) -> None:
    async with running(llama) as engine:
        assert engine.facts and (engine.facts.token_bytes, engine.facts.row_bytes) == (TOKEN_BYTES, 0)


@pytest.mark.parametrize(("config", "grows"), [(SLIDING, True), (MAMBA, False)])
async def test_windows_and_states_cost_a_fixed_amount(tmp_path: Path, config: dict[str, object], grows: bool) -> None:
    async with running(random_model(tmp_path, config)) as engine:
        assert engine.facts and engine.facts.row_bytes > 0 and (engine.facts.token_bytes > 0) == grows


async def test_what_can_never_fit_is_too_large_and_what_fits_is_served(llama: Path) -> None:
    async with running(llama) as engine:
        assert engine.facts
        weights = engine.facts.weights_bytes
    async with running(llama, memory_limit=weights + 6_000_000, prefill_chunk=64) as engine:
        with pytest.raises(Refused) as refusal:
            engine.submit(ask("y" * 3000))
        assert refusal.value.kind == "too_large" and len(re.findall(r"\d{5,}", refusal.value.message)) == 2
        assert (await answer(engine, ask("y" * 300, 4))).finish == "length"


async def test_what_does_not_fit_beside_the_others_may_come_again(llama: Path) -> None:
    async with running(llama) as engine:
        assert engine.facts
        weights = engine.facts.weights_bytes
    async with running(llama, memory_limit=weights + 6_000_000, prefill_chunk=64) as engine:
        first = engine.submit(ask("y" * 1000, 500))
        with pytest.raises(Refused) as refusal:
            engine.submit(ask("z" * 1000, 500))
        assert refusal.value.kind == "overloaded" and refusal.value.retry_after_s
        first.cancel()
        assert (await answer(engine, ask("z" * 1000, 2))).finish == "length"
