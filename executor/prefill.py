"""Prefill: a prompt is fed to the network in chunks, all but its last id, which the batch takes as the row's input.

Runs on the executor thread only.
"""

import time
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from . import kv
from .sequence import Sequence


@dataclass(slots=True, eq=False)
class Prefill:
    """One prompt on its way into the batch, for one row or for the `n` choices that fork from it."""

    ids: list[int]
    rows: list[Sequence]
    layers: kv.Layers | None = None
    done: int = 0
    arrived: float = field(default_factory=time.monotonic)

    @property
    def remaining(self) -> int:
        return len(self.ids) - 1 - self.done

    def begin(self, layers: kv.Layers, cached: int) -> None:
        """Take caches that hold the first `cached` ids already."""
        self.layers, self.done = layers, cached
        for row in self.rows:
            row.cached_tokens = min(cached, len(row.request.ids) - 1)

    @property
    def abandoned(self) -> bool:
        return all(row.ended for row in self.rows)

    def advance(self, network: Any, chunk: int) -> int:
        """Feed up to `chunk` ids and evaluate their keys and values. Returns how many were fed."""
        fed = min(chunk, self.remaining)
        if fed > 0 and self.layers is not None:
            network(mx.array([self.ids[self.done : self.done + fed]]), cache=self.layers)
            mx.eval(kv.arrays(self.layers))
            self.done += fed
        return fed


class Pace:
    """Chooses the size of a prefill chunk: large when nobody waits for a token, else about one decode step long.

    A chunk between two decode steps lengthens the gap between two tokens of every running stream by its own
    duration, so its size follows from measured speeds: with a chunk as long as a step, the gap at most doubles.
    """

    SMALLEST = 16
    FIRST_GUESS = 32

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._step_s: float | None = None
        self._tokens_per_s: float | None = None

    def stepped(self, seconds: float) -> None:
        """A decode step without a chunk beside it took this long."""
        self._step_s = seconds if self._step_s is None else 0.8 * self._step_s + 0.2 * seconds

    def prefilled(self, tokens: int, seconds: float) -> None:
        if tokens >= self.SMALLEST and seconds > 0:
            rate = tokens / seconds
            self._tokens_per_s = rate if self._tokens_per_s is None else 0.7 * self._tokens_per_s + 0.3 * rate

    def chunk(self, *, alone: bool) -> int:
        """Ids to feed next. `alone`: no row is decoding."""
        if alone:
            return self.largest
        if self._step_s is None or self._tokens_per_s is None:
            return min(self.FIRST_GUESS, self.largest)
        wanted = int(self._step_s * self._tokens_per_s)
        return max(min(self.SMALLEST, self.largest), min(wanted, self.largest))
