"""Isolation of the dice: keys, fresh seeds, uniforms, noise, and the promise that no global state is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import mlx.core as mx
import numpy as np
from soloist.sampler import keys, noise

from .cells import LOGITS, NARROW
from .drawing import draw
from .verdict import Check, Effort, close, follows

# The ends of the range of words, where a careless mapping reaches 0 or 1.
EXTREMES = np.array([0, 1, 255, 256, 511, 512, *range(2**32 - 512, 2**32)], dtype=np.uint32)


def key_mixing(effort: Effort) -> list[Check]:
    """Keys differ between draws, choices, seeds, purposes and rows; fresh seeds differ and are never 0."""
    seeds = [0, 1, -1, 2**53, keys.SEED_MIN, 2**40 + effort.seed]
    grid = [(seed, choice, step) for seed in seeds for choice in range(4) for step in range(500)]
    words = np.concatenate([keys.draw_keys(*zip(*grid, strict=True), purpose) for purpose in range(4)])
    bits = np.unpackbits(words.view(np.uint8)).mean()
    steps = keys.draw_keys([7] * 1000, [0] * 1000, range(1000))
    flips = np.unpackbits((steps[1:] ^ steps[:-1]).view(np.uint8)).mean()
    fresh = [keys.fresh_seed() for _ in range(2000)]
    with mock.patch("os.urandom", return_value=bytes(32)), mock.patch("time.time_ns", return_value=1):
        same_tick = [keys.fresh_seed() for _ in range(2000)]
    return [
        Check("no two draws share a key", len(np.unique(words, axis=0)) == len(words), {"draws": len(words)}),
        Check("half the bits are set", abs(bits - 0.5) < 0.01, {"share": float(bits)}),
        Check("half the bits change from draw to draw", abs(flips - 0.5) < 0.02, {"share": float(flips)}),
        Check("fresh seeds differ", len(set(fresh)) == len(fresh)),
        Check("fresh seeds differ in one tick with broken entropy", len(set(same_tick)) == len(same_tick)),
        Check("fresh seeds are positive and exact in JSON", all(0 < seed < 2**53 for seed in fresh + same_tick)),
    ]


def uniforms_and_noise(effort: Effort) -> list[Check]:
    """Uniforms are k / 2**24 inside (0, 1), noise is finite and exact at the ends, and both have the right shape."""
    words = mx.array(EXTREMES)
    ends = np.array(noise.open_interval(words), dtype=np.float64)
    wanted = np.maximum(EXTREMES >> 8, 1).astype(np.float64) / 2**24
    row_keys = mx.array(keys.draw_keys([effort.seed] * 8, range(8), [0] * 8))
    sample = np.array(noise.open_interval(noise.random_words(row_keys, effort.draws)), dtype=np.float64)
    made = np.array(noise.row_noise(row_keys, effort.draws), dtype=np.float64)
    listed = mx.broadcast_to(mx.arange(effort.draws), (8, effort.draws))
    deciles = np.full(10, 0.1)
    return [
        Check("uniforms lie strictly inside (0, 1)", bool((ends > 0).all() and (ends < 1).all())),
        close("uniforms are exact at the extreme words", ends, wanted, 0),
        Check("uniforms are whole 24-bit steps", bool((sample * 2**24 % 1 == 0).all())),
        Check("noise is finite at the extreme words", bool(mx.all(mx.isfinite(noise.gumbel(mx.array(ends)))).item())),
        close("noise is -log2(-log2 u)", made, -np.log2(-np.log2(sample)), 2e-5),
        follows("uniforms are uniform", (sample * 10).astype(int).reshape(-1), deciles),
        follows("noise of listed tokens is as good", _deciles(noise.token_noise(row_keys, listed)), deciles),
        Check("rows have noise of their own", len(np.unique(made[:, :16])) == 8 * 16),
        close("a row's noise is its own key's", noise.row_noise(row_keys[3:4], effort.draws)[0], made[3], 0),
    ]


def global_state(effort: Effort) -> list[Check]:
    """A draw neither reads nor moves MLX's global generator."""
    few = range(8)
    with no_global_state():
        guarded = draw(np.tile(LOGITS, (8, 1)), list(NARROW), few, few)
    mx.random.seed(1)
    first = draw(np.tile(LOGITS, (8, 1)), list(NARROW), few, few)
    return [Check("draws do not depend on the global seed", bool((guarded == first).all()))]


@contextmanager
def no_global_state() -> Iterator[None]:
    """Within, using MLX's random functions without a key raises, and so does reading the global state."""

    class Untouchable:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError("the global random state was read")

    def keyed_only(name: str) -> object:
        real = getattr(mx.random, name)

        def guarded(*args: object, key: object = None, **options: object) -> object:
            assert key is not None, f"mx.random.{name} was called without a key"
            return real(*args, key=key, **options)

        return guarded

    names = ("uniform", "normal", "gumbel", "categorical", "randint", "bernoulli", "permutation", "laplace")
    with (
        mock.patch.multiple(mx.random, **{name: keyed_only(name) for name in names}),
        mock.patch.object(mx.random, "state", Untouchable()),
    ):
        yield


def _deciles(made: mx.array) -> np.ndarray:
    uniform = np.exp2(-np.exp2(-np.array(made, dtype=np.float64)))
    return np.minimum(uniform * 10, 9).astype(int).reshape(-1)
