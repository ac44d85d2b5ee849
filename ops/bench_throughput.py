"""Decode speed: one stream against the bare loop, and many streams at once, unseeded, seeded and mixed.

Two figures of many streams: over the whole run (what clients get), and while all of them decode (what the bare loop at
the same batch can be compared with).
"""

from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any

from .bench_course import Course, Figures, NotMeasured, Scenario
from .bench_plan import Outcome, Report
from .bench_servers import Server
from .bench_sizes import LEVELS
from .bench_stats import quantile

STORY = "Once upon a time, in a small village by the sea, there lived an old clockmaker"
BARE_ROWS = 8
# Eight rows that no two of which are drawn alike.
MIXED: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.3, "top_k": 40},
    {"temperature": 0.9, "min_p": 0.05},
    {"temperature": 1.0, "seed": 11, "top_p": 0.95, "top_k": 100},
    {"temperature": 0.8, "repetition_penalty": 1.1},
    {"temperature": 1.0, "presence_penalty": 0.5, "frequency_penalty": 0.2},
    {"temperature": 1.0, "logprobs": 2},
)


def measure_decode(course: Course, server: Server, round: int) -> Figures:
    tokens = course.sizes.decode_tokens
    prompt = _story(round)
    (outcome,) = course.fire(server, [course.shot(server, prompt, tokens, temperature=0)]).outcomes
    yield "decode_tok_s", stream_rate(outcome)
    if course.bare is not None:
        yield "decode_greedy_agreement_ratio", agreement(course, prompt, outcome.text, tokens)


def bare_decode(course: Course, round: int) -> Figures:
    prompt = _story(round)
    yield "decode_tok_s", course.run_bare([prompt], course.sizes.decode_tokens).tokens_per_s


def _story(round: int) -> str:
    return f"{STORY} who knew the number {round}"


def agreement(course: Course, prompt: str, text: str, tokens: int) -> float:
    """The part of the bare loop's greedy tokens that the server's text begins with."""
    ids = course.greedy_ids(prompt, tokens)
    output, shown = course.tokenizer.output(), ""
    for place, token in enumerate(ids):
        if token in course.tokenizer.end_ids:
            return 1.0
        shown += output.push([token]).content
        if not text.startswith(shown):
            return place / len(ids)
        if len(shown) == len(text):
            return 1.0
    return 1.0


def stream_rate(outcome: Outcome) -> float:
    """Tokens a second from the first text to the last. Raises NotMeasured for a stream too short to have a rate."""
    if len(outcome.arrivals_s) < 2:
        raise NotMeasured(f"a stream of {len(outcome.arrivals_s)} pieces has no rate")
    return (outcome.tokens - 1) / (outcome.arrivals_s[-1] - outcome.arrivals_s[0])


def measure_level(level: int, course: Course, server: Server, round: int) -> Figures:
    if level not in course.sizes.levels:
        return
    report = _streams(course, server, f"plain {level} {round}", [{}] * level)
    yield f"throughput{level}_tok_s", overall_rate(report)
    if (steady := steady_rate(report.outcomes)) is not None:
        yield f"steady{level}_tok_s", steady
    yield f"throughput{level}_ttft_ms", 1e3 * median(outcome.ttft_s for outcome in report.outcomes)
    gaps = [gap for outcome in report.outcomes for gap in gaps_of(outcome)]
    if gaps:
        yield f"itl{level}_p50_ms", 1e3 * quantile(gaps, 0.5)
        yield f"itl{level}_p95_ms", 1e3 * quantile(gaps, 0.95)
        yield f"itl{level}_max_ms", 1e3 * max(gaps)


def measure_seeded(level: int, course: Course, server: Server, round: int) -> Figures:
    """Others at eight streams only: a server that takes seeded requests one by one would need most of the run."""
    if level not in (course.sizes.seeded_levels if server.name == course.subject else (8,)):
        return
    seeds = [{"seed": 1000 * round + place} for place in range(level)]
    report = _streams(course, server, f"seeded {level} {round}", seeds)
    yield f"throughput{level}_seeded_tok_s", overall_rate(report)


def measure_mixed(course: Course, server: Server, round: int) -> Figures:
    """Uniform streams right before, so that the two can be compared within one round."""
    uniform = _streams(course, server, f"uniform {round}", [{}] * len(MIXED))
    yield "throughput8_uniform_tok_s", overall_rate(uniform)
    yield "throughput8_mixed_tok_s", overall_rate(_streams(course, server, f"mixed {round}", MIXED))


def bare_throughput(course: Course, round: int) -> Figures:
    if BARE_ROWS not in course.sizes.levels:
        return
    prompts = course.prompts(f"bare {round}")
    texts = [prompts.text(course.sizes.short) for _ in range(BARE_ROWS)]
    yield "steady8_tok_s", course.run_bare(texts, course.sizes.stream_tokens).tokens_per_s


def _streams(course: Course, server: Server, label: str, fields: Sequence[dict[str, Any]]) -> Report:
    prompts, sizes = course.prompts(label), course.sizes
    return course.fire(
        server,
        [course.shot(server, prompts.text(sizes.short), sizes.stream_tokens, **each) for each in fields],
    )


def overall_rate(report: Report) -> float:
    """New tokens of all streams over the time from the first request to the last token."""
    return sum(outcome.tokens for outcome in report.outcomes) / report.wall_s


def steady_rate(outcomes: Sequence[Outcome]) -> float | None:
    """Tokens a second while every stream decodes: the sum of the streams' own rates within that window.

    The rows of one step arrive a moment apart, so the window is half a gap wider than its strict bounds.
    """
    gaps = [gap for outcome in outcomes for gap in gaps_of(outcome)]
    if not gaps:
        return None
    slack = median(gaps) / 2
    begin = max(outcome.arrivals_s[0] for outcome in outcomes) - slack
    end = min(outcome.arrivals_s[-1] for outcome in outcomes) + slack
    total = 0.0
    for outcome in outcomes:
        inside = [at for at in outcome.arrivals_s if begin <= at <= end]
        if len(inside) < 3:
            return None
        total += (len(inside) - 1) / (inside[-1] - inside[0]) * outcome.tokens / len(outcome.arrivals_s)
    return total


def gaps_of(outcome: Outcome) -> list[float]:
    return [later - earlier for earlier, later in zip(outcome.arrivals_s, outcome.arrivals_s[1:], strict=False)]


# One scenario a level, so that what is compared is measured seconds apart.
SCENARIOS = (
    Scenario("decode", measure_decode, bare_decode),
    *(Scenario("throughput", partial(measure_level, n), bare_throughput if n == BARE_ROWS else None) for n in LEVELS),
    *(Scenario("seeded", partial(measure_seeded, n)) for n in LEVELS),
    Scenario("mixed", measure_mixed, subject_only=True),
)
