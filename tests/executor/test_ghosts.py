"""The three ghosts of MLX servers, live: the naive way is shown to fail on this very MLX, ours to pass."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from soloist.executor import model as loader
from soloist.executor.concrete import arrays_of, make_concrete
from soloist.executor.inbox import Inbox
from soloist.executor.pulse import Pulse
from soloist.executor.settings import EngineSettings
from soloist.executor.worker import Worker
from tiny_models import LLAMA, random_model

ROOMS = ("executor", "sampler", "lora")


def in_thread(work: Callable[[], Any]) -> Any:
    """Run in a fresh thread that cleans up its streams; its result, or its exception raised here."""
    outcome: dict[str, Any] = {}

    def body() -> None:
        try:
            outcome["result"] = work()
        except Exception as error:
            outcome["error"] = error
        finally:
            mx.clear_streams()

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


def own_stream() -> None:
    mx.set_default_stream(mx.new_stream(mx.default_device()))


def lazy_product() -> mx.array:
    own_stream()
    return mx.ones((4,)) * 3


# -- the thread: a lazy array names a stream of the thread that made it -------------------------


def test_a_lazy_array_cannot_be_used_by_another_thread() -> None:
    lazy = in_thread(lazy_product)
    with pytest.raises(RuntimeError, match="no Stream"):
        in_thread(lambda: (lazy + 1).tolist())


def test_a_concrete_array_can() -> None:
    def concrete() -> mx.array:
        array = lazy_product()
        make_concrete([array])
        return array

    kept = in_thread(concrete)
    assert in_thread(lambda: (kept + 1).tolist()) == [4.0] * 4


def test_every_array_of_a_loaded_model_is_concrete_parameters_or_not(tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    folder = random_model(tmp_path, LLAMA | {"rope_scaling": rope | {"original_max_position_embeddings": 64}})

    def load() -> Any:
        own_stream()
        return loader.load(EngineSettings(folder), lambda: None)

    loaded = in_thread(load)
    everything = list(arrays_of(loaded.network))
    assert len(everything) > len(tree_flatten(loaded.network.parameters())), "RoPE tables are no parameters"
    in_thread(lambda: [mx.sum(array).item() for array in everything])


# -- the stream: a scoped one dies while lazy arrays still name it ------------------------------


def test_what_a_scoped_stream_left_lazy_fails_one_request_later() -> None:
    def saved_back() -> mx.array:
        with mx.stream(mx.new_stream(mx.default_device())):
            return mx.ones((4,)) * 2

    entry = in_thread(saved_back)
    with pytest.raises(RuntimeError, match="no Stream"):
        in_thread(entry.tolist)


def test_no_room_opens_a_scoped_stream() -> None:
    root = Path(__file__).parents[2]
    files = [path for room in ROOMS for path in (root / room).rglob("*.py")]
    assert [path.name for path in files if re.search(r"\bmx\.stream\(|StreamContext", path.read_text())] == []


# -- the dice: an unseeded thread replays the stream of every other one -------------------------


def unseeded_draws() -> list[float]:
    return [float(x) for x in mx.random.uniform(shape=(8,)).tolist()]


def test_unseeded_threads_all_draw_the_same() -> None:
    assert in_thread(unseeded_draws) == in_thread(unseeded_draws)


def test_the_executors_thread_has_dice_of_its_own() -> None:
    def draws_of_a_worker() -> list[float]:
        worker = Worker(EngineSettings(Path("unused")), Inbox(), Pulse(1), lambda events: None)
        worker.open_thread()
        return unseeded_draws()

    first, second = in_thread(draws_of_a_worker), in_thread(draws_of_a_worker)
    assert first != second != in_thread(unseeded_draws)
