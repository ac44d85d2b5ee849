"""Counts of values by size, for histograms: written by one thread, read by any, without a lock.

A reader may miss the value that is just being added; what it reads is consistent in itself.
"""

from bisect import bisect_left
from itertools import accumulate


class Tally:
    """How often values fell below each of the bounds, and their sum."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, *bounds: float) -> None:
        """bounds: ascending; a value belongs to the first that it does not exceed."""
        self.bounds = bounds
        self.total = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def read(self) -> list[int]:
        """Cumulative counts: one for each bound, and all values at the end."""
        return list(accumulate(self._counts.copy()))


class Tallies:
    """What the executor thread counts of its own work, in one generation of it."""

    def __init__(self) -> None:
        self.queue_seconds = Tally(0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
        self.prefill_tokens = Tally(1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
        self.prefill_seconds = Tally(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
        self.decode_rows = Tally(1, 2, 4, 8, 16, 32, 64, 128)
        self.decode_seconds = Tally(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1, 5, 10)
