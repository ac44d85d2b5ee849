"""How much running streams feel it when a long prompt joins them."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from .bench_course import Course, Figures, NotMeasured, Scenario
from .bench_plan import Cue, Outcome
from .bench_servers import Server
from .bench_throughput import gaps_of

REFRAIN, REPEATS = 4, 16  # words that are said again and again: a greedy model goes on with them for ever
ENDLESS = 2000  # tokens: the running streams are broken off, they never end by themselves
GREEDY: dict[str, Any] = {"temperature": 0}


def measure_join(course: Course, server: Server, round: int) -> Figures:
    return _join(course, server, f"join {round}", "join", 1, course.sizes.join_prompt)


def measure_join4(course: Course, server: Server, round: int) -> Figures:
    return _join(course, server, f"join4 {round}", "join4", 4, course.sizes.join4_prompt)


def _join(course: Course, server: Server, label: str, name: str, running: int, joining: int) -> Figures:
    """The joining prompt is sent when the last stream has settled; the streams end with it."""
    prompts, sizes = course.prompts(label), course.sizes
    shots = [
        course.shot(server, prompts.refrain(REFRAIN, REPEATS), ENDLESS, leave=Cue(running), **GREEDY)
        for _ in range(running)
    ]
    newcomer = course.shot(server, prompts.text(joining), 4, after=Cue(running - 1, sizes.settle), **GREEDY)
    *streams, joined = course.fire(server, [*shots, newcomer]).outcomes
    before, during = split(streams, joined)
    if not before or not during:
        raise NotMeasured(f"{server.name}: the running streams ended before the prompt joined")
    yield f"{name}_median_itl_ms", 1e3 * median(before)
    yield f"{name}_gap_ms", 1e3 * max(during)
    yield f"{name}_during_itl_ms", 1e3 * median(during)
    yield f"{name}_ttft_ms", 1e3 * joined.ttft_s


def split(streams: Sequence[Outcome], joined: Outcome) -> tuple[list[float], list[float]]:
    """Gaps between pieces of the running streams: those that ended before the newcomer came, and those that touch
    the time between its sending and its first text."""
    before, during = [], []
    first = joined.arrivals_s[0]
    for stream in streams:
        for gap, end in zip(gaps_of(stream), stream.arrivals_s[1:], strict=True):
            if end <= joined.sent_s:
                before.append(gap)
            elif end - gap <= first:
                during.append(gap)
    return before, during


SCENARIOS = (Scenario("join", measure_join), Scenario("join4", measure_join4))
