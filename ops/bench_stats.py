"""From raw figures to medians, spread and ratios. A ratio is taken round by round: drift cancels."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure of one server in one round."""

    scenario: str
    server: str
    metric: str
    round: int
    value: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Median, extremes and number of a metric's figures."""

    median: float
    low: float
    high: float
    count: int


def summary(values: Sequence[float]) -> Summary:
    return Summary(median(values), min(values), max(values), len(values))


def quantile(values: Iterable[float], part: float) -> float:
    """The smallest value that at least this part of all values does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


class Figures:
    """All samples of a run, by server and metric."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._rounds: dict[tuple[str, str], dict[int, list[float]]] = {}
        for sample in samples:
            rounds = self._rounds.setdefault((sample.server, sample.metric), {})
            rounds.setdefault(sample.round, []).append(sample.value)

    @property
    def measured(self) -> list[tuple[str, str]]:
        """(server, metric), in the order of their first sample."""
        return list(self._rounds)

    def summary(self, server: str, metric: str) -> Summary:
        return summary([value for values in self._rounds[server, metric].values() for value in values])

    def ratio(self, above: tuple[str, str], below: tuple[str, str]) -> Summary | None:
        """above / below, over the rounds in which both were measured; None where there is no such round."""
        over, under = self._rounds.get(above, {}), self._rounds.get(below, {})
        pairs = [(median(over[round]), median(under[round])) for round in over if round in under]
        quotients = [a / b for a, b in pairs if b > 0]
        return summary(quotients) if quotients else None
