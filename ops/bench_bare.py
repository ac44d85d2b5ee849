"""The limit: mlx-lm's own forward pass and an argmax, with its own cache, one step in flight. A process of its own.

Greedy and without text, sockets or scheduling: what is left of a server when all that serves is taken away. Run as a
module with the model folder as its argument; speaks `Ask` and `Told` as JSON lines.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..executor.blas import load_blas
from .bench_child import answer_lines


@dataclass(frozen=True, slots=True)
class Ask:
    """prompts: ids of equal length, one row each. tokens: how many to generate for each row."""

    prompts: list[list[int]]
    tokens: int


@dataclass(frozen=True, slots=True)
class Told:
    """ids: rows of generated ids. prefill_s: until the first token. decode_s: from it to the last."""

    ids: list[list[int]]
    prefill_s: float
    decode_s: float
    device: str
    blas: str

    @property
    def tokens_per_s(self) -> float:
        return sum(len(row) - 1 for row in self.ids) / self.decode_s


def load_network(folder: Path) -> Any:
    """The weights as the daemon serves them: float32 on the CPU backend, the model's own type on a GPU."""
    import mlx.core as mx
    from mlx_lm.utils import dequantize_model, load_model

    network, _ = load_model(folder, lazy=True)
    if mx.default_device() == mx.Device(mx.cpu):
        if any(hasattr(module, "bits") for _, module in network.named_modules()):
            network = dequantize_model(network)
        network.set_dtype(mx.float32)
    network.eval()
    mx.eval(network.parameters())
    return network


def generate(network: Any, ask: Ask, blas: str) -> Told:
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    layers = make_prompt_cache(network)

    def step(ids: Any) -> Any:
        return mx.argmax(network(ids, cache=layers)[:, -1], axis=-1)

    began = time.perf_counter()
    current = step(mx.array(ask.prompts))
    columns = [current.tolist()]
    first = time.perf_counter()
    current = step(current[:, None])
    mx.async_eval(current)
    for _ in range(ask.tokens - 2):
        following = step(current[:, None])
        mx.async_eval(following)  # the next step runs while this one's ids are read
        columns.append(current.tolist())
        current = following
    columns.append(current.tolist())
    ended = time.perf_counter()
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Told(rows, first - began, ended - first, str(mx.default_device()), blas)


def main(folder: Path) -> None:
    blas = load_blas()  # before MLX is imported
    network = load_network(folder)
    answer_lines(lambda ask: generate(network, ask, blas.name), Ask)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
