"""The engine on tiny real models: answers, seeds, choices, cancellation, the queue, its end."""

import asyncio
import time
from pathlib import Path

import pytest
from engines import answer, ask, collect, running
from soloist.executor.engine import Engine
from soloist.executor.errors import ModelLoadError, Refused
from soloist.executor.request import Delta, Failure, Progress
from soloist.executor.settings import EngineSettings
from tiny_models import ABCD, EOS, LLAMA, random_model, scripted


@pytest.fixture(scope="module")
def reciter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripted(tmp_path_factory.mktemp("m") / "reciter", ["k", "l", "m", "n"])


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripted(tmp_path_factory.mktemp("m") / "endless", ["k", "l"], after_last="k", context=200_000)


@pytest.fixture(scope="module")
def dice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripted(tmp_path_factory.mktemp("m") / "dice", dist=ABCD)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("m") / "llama", LLAMA)


async def test_a_script_is_recited_to_its_end_token(reciter: Path) -> None:
    async with running(reciter) as engine:
        got = await answer(engine, ask(temperature=0))
    assert (got.text, got.finish, got.ended_by) == ("klmn", "stop", EOS)


async def test_the_end_token_counts_towards_max_tokens(reciter: Path) -> None:
    async with running(reciter) as engine:
        cut = await answer(engine, ask(temperature=0, max_tokens=4))
        whole = await answer(engine, ask(temperature=0, max_tokens=5))
    assert (cut.text, cut.finish, cut.ended_by) == ("klmn", "length", None)
    assert (whole.text, whole.finish, whole.ended_by) == ("klmn", "stop", EOS)


async def test_rows_of_one_batch_draw_what_they_draw_alone(dice: Path) -> None:
    shapes = [
        {"temperature": 0},
        {"seed": 1},
        {"seed": 2, "top_k": 2},
        {"seed": 1, "top_p": 0.6},
        {"seed": 5, "logit_bias": ((97, -100.0),)},
        {"seed": 6, "presence_penalty": 2.0, "frequency_penalty": 0.5},
        {"seed": 7, "repetition_penalty": 1.5},
        {"seed": 8, "logprobs": 3},
    ]
    async with running(dice) as engine:
        alone = [await answer(engine, ask(max_tokens=24, **shape)) for shape in shapes]
        together = await asyncio.gather(*(answer(engine, ask(max_tokens=24, **shape)) for shape in shapes))
    assert [a.ids for a in together] == [a.ids for a in alone]
    assert alone[0].text == "a" * 24


async def test_joining_and_leaving_rows_change_nobodys_tokens(llama: Path) -> None:
    prompts = ["a", "bb" * 30, "ccc" * 5, "d" * 41, "e" * 3, "f" * 17]
    lengths = [40, 3, 17, 9, 25, 1]
    requests = [{"seed": i, "max_tokens": n} for i, n in enumerate(lengths)]
    async with running(llama, max_batch=3, prefill_chunk=16) as engine:
        alone = [await answer(engine, ask(p, **r)) for p, r in zip(prompts, requests, strict=True)]
        together = await asyncio.gather(*(answer(engine, ask(p, **r)) for p, r in zip(prompts, requests, strict=True)))
    assert [a.ids for a in together] == [a.ids for a in alone]


async def test_choices_of_one_request_differ_and_repeat(dice: Path) -> None:
    async with running(dice) as engine:
        first = await collect(engine.submit(ask(max_tokens=24, seed=9, n=3)))
        again = await collect(engine.submit(ask(max_tokens=24, seed=9, n=3)))
        single = await answer(engine, ask(max_tokens=24, seed=9))
    assert [a.ids for a in first] == [a.ids for a in again]
    assert len({tuple(a.ids) for a in first}) == 3
    assert first[0].ids == single.ids


async def test_a_seed_draws_the_same_in_a_new_engine(dice: Path) -> None:
    drawn = []
    for _ in range(2):
        async with running(dice) as engine:
            drawn.append((await answer(engine, ask(max_tokens=24, seed=3))).ids)
    assert drawn[0] == drawn[1]


async def test_logprobs_are_those_of_the_model_itself(dice: Path) -> None:
    import math

    async with running(dice) as engine:
        got = await answer(engine, ask(max_tokens=6, seed=1, temperature=0.3, top_k=2, logprobs=4))
    for entry in got.logprobs:
        assert entry.logprob == pytest.approx(math.log(ABCD[chr(entry.id)]), abs=1e-4)
        assert [chr(i) for i, _ in entry.top] == list("abcd")


async def test_a_cancelled_row_leaves_its_neighbours_tokens_unchanged(endless: Path) -> None:
    async with running(endless) as engine:
        doomed = engine.submit(ask(max_tokens=100_000, temperature=0))
        neighbour = asyncio.create_task(answer(engine, ask(max_tokens=200, temperature=0)))
        async for event in doomed:
            if isinstance(event, Delta):
                break
        doomed.cancel()
        assert (await neighbour).text == "kl" * 100
        await settle(engine)
        assert engine.health().running == 0


async def settle(engine: Engine) -> None:
    """Until no row is left: a step or two after the last cancellation."""
    until = time.monotonic() + 5
    while (engine.health().running or engine.health().queue_depth) and time.monotonic() < until:
        await asyncio.sleep(0.01)


async def test_a_cancelled_request_frees_its_place_in_the_queue_at_once(endless: Path) -> None:
    async with running(endless, max_batch=1, max_queue=1) as engine:
        runner = engine.submit(ask(max_tokens=100_000))
        waiter = engine.submit(ask())
        with pytest.raises(Refused) as refusal:
            engine.submit(ask())
        assert refusal.value.kind == "overloaded" and refusal.value.retry_after_s
        waiter.cancel()
        second = engine.submit(ask(max_tokens=2))
        runner.cancel()
        assert (await collect(second))[0].finish == "length"


async def test_a_waiting_request_learns_its_place(endless: Path) -> None:
    async with running(endless, max_batch=1) as engine:
        runner = engine.submit(ask(max_tokens=100_000))
        first, second = engine.submit(ask(max_tokens=1)), engine.submit(ask(max_tokens=1))
        places = [await anext(aiter(first)), await anext(aiter(second))]
        runner.cancel()
        await collect(second)
    assert [event.queued for event in places if isinstance(event, Progress)] == [1, 2]


async def test_a_long_prompt_reports_its_progress(llama: Path) -> None:
    async with running(llama, prefill_chunk=16) as engine:
        stream = engine.submit(ask("y" * 100, max_tokens=1))
        events = [event async for event in stream]
    assert isinstance(events[-1], Delta)


async def test_a_deadline_ends_a_request_and_frees_its_row(endless: Path) -> None:
    async with running(endless) as engine:
        got = await answer(engine, ask(max_tokens=100_000, deadline=time.monotonic() + 0.2))
        assert got.failure and got.failure.kind == "deadline"
        await settle(engine)
        assert engine.health().running == 0


async def test_a_row_without_a_distribution_fails_alone(tmp_path: Path) -> None:
    poisoned = scripted(tmp_path / "nan", ["k", "l", "m", "n"], poison={"z": float("nan")})
    async with running(scripted(tmp_path / "fine", ["k", "l", "m", "n"])) as engine:
        assert (await answer(engine, ask(temperature=0))).text == "klmn"
    with pytest.raises(ModelLoadError, match="not a distribution"):
        async with running(poisoned):
            pass


async def test_a_draining_engine_refuses_and_finishes(endless: Path) -> None:
    async with running(endless) as engine:
        stream = engine.submit(ask(max_tokens=100_000))
        await anext(aiter(stream))
        engine.drain()
        with pytest.raises(Refused) as refusal:
            engine.submit(ask())
        assert refusal.value.kind == "draining" and engine.health().state == "draining"
        await engine.stop(0.1)
        failures = [event async for event in stream if isinstance(event, Failure)]
    assert [failure.kind for failure in failures] == ["draining"]
    assert engine.health().state == "stopped"


async def test_a_folder_that_is_no_model_is_one_line(tmp_path: Path) -> None:
    engine = Engine(EngineSettings(tmp_path / "nowhere"))
    await engine.start()
    with pytest.raises(ModelLoadError) as error:
        await engine.loaded()
    assert "nowhere" in str(error.value) and "\n" not in str(error.value)
    assert engine.health().state == "failed"
    await engine.stop(0)


async def test_the_canary_draws_beside_a_full_batch(endless: Path) -> None:
    async with running(endless, max_batch=1) as engine:
        runner = engine.submit(ask(max_tokens=100_000))
        await anext(aiter(runner))
        await engine.canary(5.0)
        runner.cancel()
