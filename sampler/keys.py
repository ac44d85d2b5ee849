"""Where randomness comes from: fresh seeds, and one 64-bit key a draw. Plain Python and NumPy, no MLX.

A key is a pure function of (seed, choice, draw), so a batch neighbour, a restart or a resumed cache cannot change
it. The mixing is the finaliser of SplitMix64 (Steele, Lea & Flood, "Fast Splittable Pseudorandom Number
Generators", OOPSLA 2014), a bijection of 64-bit words. MLX's Threefry (Salmon et al., SC 2011) does the rest.
"""

import hashlib
import itertools
import os
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SEED_MIN = -(2**63)
SEED_MAX = 2**64 - 1
CHOICE_LIMIT = 2**20
DRAW_LIMIT = 2**40

# What a draw is for: speculative decoding needs three draws that know nothing of each other.
SAMPLE, DRAFT, ACCEPT, RESIDUAL = range(4)

_WORD = 2**64 - 1
_GOLDEN, _FIRST, _SECOND = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_27, _30, _31 = map(np.uint64, (27, 30, 31))
_requests = itertools.count(1)


def fresh_seed() -> int:
    """A seed for a request that named none: in [1, 2**53), which every JSON client can echo exactly.

    OS entropy, the nanosecond clock, the process id and a process-wide count are hashed together, so that two
    requests in one tick of the clock, or two processes with one broken entropy source, still differ.
    """
    while True:
        parts = (os.getpid(), time.time_ns(), time.perf_counter_ns(), next(_requests))
        text = os.urandom(32) + repr(parts).encode()
        seed = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 11
        if seed:
            return seed


def check_seed(value: object) -> int:
    """The integer that a client named, unchanged. Zero and negative seeds are seeds like any other.

    Seeds are taken modulo 2**64, so -1 and 2**64 - 1 are one seed. Raises ValueError outside [-2**63, 2**64).
    """
    if isinstance(value, bool) or not isinstance(value, int) or not SEED_MIN <= value <= SEED_MAX:
        raise ValueError(f"seed must be an integer from {SEED_MIN} to {SEED_MAX}")
    return value


def draw_keys(
    seeds: Sequence[int], choices: Sequence[int], draws: Sequence[int], purpose: int = SAMPLE
) -> NDArray[np.uint32]:
    """uint32[B, 2]: the MLX keys of B draws.

    seeds: Python integers; choices: [B] in [0, 2**20); draws: [B] in [0, 2**40); purpose: 0..3. For one seed the
    keys of all draws differ by construction; between seeds two draws share a key with probability 2**-64.
    """
    return Dice(seeds, choices).keys(draws, purpose)


class Dice:
    """The part of B rows' keys that does not change from draw to draw, mixed once."""

    def __init__(self, seeds: Sequence[int], choices: Sequence[int]) -> None:
        if any(not 0 <= choice < CHOICE_LIMIT for choice in choices):
            raise ValueError("choice index out of range")
        self._seeds = _mix(np.array([check_seed(seed) & _WORD for seed in seeds], dtype=np.uint64) + _GOLDEN)
        self._choices = np.array([choice << 42 for choice in choices], dtype=np.uint64)

    def keys(self, draws: Sequence[int], purpose: int = SAMPLE) -> NDArray[np.uint32]:
        """uint32[B, 2] for the draw indices [B]: the low word, then the high one."""
        if any(not 0 <= draw < DRAW_LIMIT for draw in draws):
            raise ValueError("draw index out of range")
        places = self._choices | np.array([draw << 2 | purpose for draw in draws], dtype=np.uint64)
        words: NDArray[np.uint64] = _mix(_mix(places) ^ self._seeds)
        return words.astype("<u8", copy=False).view("<u4").reshape(-1, 2)


def draw_key(seed: int, choice: int, draw: int, purpose: int = SAMPLE) -> tuple[int, int]:
    """One draw's key as two 32-bit words; the same words as `draw_keys`."""
    low, high = draw_keys([seed], [choice], [draw], purpose)[0]
    return int(low), int(high)


def _mix(word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: a bijection of 64-bit words in which each input bit flips about half the output."""
    word = (word ^ (word >> _30)) * _FIRST
    word = (word ^ (word >> _27)) * _SECOND
    return word ^ (word >> _31)
