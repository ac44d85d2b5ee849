"""Microseconds a step: the batched chain beside `mlx_lm.sample_utils` doing the same rows one by one.

    python tests/sampler/speed.py [--repeats N]

Both sides take turns within one run, and the fastest of the repeats counts, for other work on the machine only adds.
Ours includes making the keys and the check for rows that cannot be drawn from; theirs is the samplers alone, without
the log-softmax that mlx-lm does first.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable
from contextlib import suppress

if sys.platform == "linux":
    with suppress(OSError):
        ctypes.CDLL("libopenblas.so.0", mode=ctypes.RTLD_GLOBAL)

import mlx.core as mx
import numpy as np
from mlx_lm.sample_utils import make_sampler
from soloist.sampler.chain import sample
from soloist.sampler.params import SamplingParams
from soloist.sampler.rows import Rows, RowSpec

KINDS = {
    "greedy": SamplingParams(temperature=0),
    "plain": SamplingParams(),
    "top_k 40": SamplingParams(top_k=40),
    "top_p 0.9": SamplingParams(top_p=0.9),
    "all together": SamplingParams(temperature=0.8, top_k=40, top_p=0.9, min_p=0.05),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    print("| V | B | rows | Soloist | mlx-lm row by row | faster |\n|---|---|---|---|---|---|")
    for width in (49_152, 151_936):
        for batch in (1, 8, 32):
            logits = mx.array(np.random.default_rng(0).normal(0, 3, (batch, width)).astype(np.float32))
            mx.eval(logits)
            kinds = {name: [params] * batch for name, params in KINDS.items()}
            if batch > 1:
                kinds["mixed"] = [list(KINDS.values())[at % len(KINDS)] for at in range(batch)]
            for name, params in kinds.items():
                ours, theirs = _compare(_ours(logits, params), _theirs(logits, params), max(4, repeats * 8 // batch))
                print(f"| {width} | {batch} | {name} | {ours:.0f} | {theirs:.0f} | {theirs / ours:.1f}x |", flush=True)


def _ours(logits: mx.array, params: list[SamplingParams]) -> Callable[[], None]:
    rows = Rows(logits.shape[-1], [RowSpec(own, at) for at, own in enumerate(params)])

    def step() -> None:
        mx.eval(sample(logits, rows, rows.keys([3] * len(params))).arrays())

    return step


def _theirs(logits: mx.array, params: list[SamplingParams]) -> Callable[[], None]:
    samplers = [make_sampler(own.temperature, own.top_p if own.top_p < 1 else 0.0, own.min_p, 1, own.top_k)
                for own in params]  # fmt: skip

    def step() -> None:
        mx.eval([sampler(logits[at : at + 1]) for at, sampler in enumerate(samplers)])

    return step


def _compare(ours: Callable[[], None], theirs: Callable[[], None], repeats: int) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = ([], [])
    for repeat in range(repeats + 1):
        for step, spent in zip((ours, theirs), times, strict=True):
            began = time.perf_counter()
            step()
            if repeat:
                spent.append((time.perf_counter() - began) * 1e6)
    return min(times[0]), min(times[1])


if __name__ == "__main__":
    main()
