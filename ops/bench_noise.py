"""How busy the machine was with other things while we measured: figures taken beside a neighbour say little.

Reads Linux's /proc (proc(5)); elsewhere it has nothing to say.
"""

import os
from collections.abc import Callable, Iterable

from .bench_process import cpu_seconds

Pids = Callable[[], Iterable[int]]
MACHINE = "machine"
METRIC = "foreign_cores"
NOTABLE = 0.15  # cores: more than a desktop's idling


def busy_seconds() -> float | None:
    """Processor time that all cores together have spent on anything since the machine started."""
    try:
        with open("/proc/stat", encoding="ascii") as stat:
            ticks = [int(field) for field in stat.readline().split()[1:9]]
    except (FileNotFoundError, PermissionError):
        return None
    idle, waiting = ticks[3], ticks[4]
    return (sum(ticks) - idle - waiting) / os.sysconf("SC_CLK_TCK")


class Noise:
    """Between two readings: cores' worth of work that was not ours. pids: the processes that are, now."""

    def __init__(self, pids: Pids) -> None:
        self._pids = pids

    def read(self, now_s: float) -> tuple[float, float | None, dict[int, float]]:
        """now_s: any steady clock."""
        ours = {pid: used for pid in self._pids() if (used := cpu_seconds(pid)) is not None}
        return now_s, busy_seconds(), ours

    @staticmethod
    def between(
        before: tuple[float, float | None, dict[int, float]], after: tuple[float, float | None, dict[int, float]]
    ) -> float | None:
        """Processes that ended in between count as foreign; scenarios that start their own are not judged."""
        if before[1] is None or after[1] is None or after[0] <= before[0]:
            return None
        ours = sum(used - before[2].get(pid, 0.0) for pid, used in after[2].items())
        return max(0.0, (after[1] - before[1] - ours) / (after[0] - before[0]))
