"""The arithmetic of the bench, on figures whose answers are known."""

import pytest
from soloist.ops.bench_course import BARE
from soloist.ops.bench_events import Events, Seen
from soloist.ops.bench_joins import split
from soloist.ops.bench_noise import Noise
from soloist.ops.bench_plan import Outcome
from soloist.ops.bench_prompts import Gauge, Prompts, fit
from soloist.ops.bench_ratios import Target, lines
from soloist.ops.bench_soak import active_mib, growth
from soloist.ops.bench_stats import Figures, Sample, quantile
from soloist.ops.bench_throughput import steady_rate, stream_rate


def outcome(*arrivals: float, sent: float = 0.0, tokens: int | None = None) -> Outcome:
    return Outcome(200, sent, arrivals[-1], arrivals, "x" * len(arrivals), completion_tokens=tokens)


def test_a_ratio_is_taken_round_by_round() -> None:
    # The machine halves its speed after the first round; the ratio of medians would be 2 / 3.
    figures = Figures(
        [
            Sample("s", "a", "m", 0, 10.0),
            Sample("s", "b", "m", 0, 20.0),
            Sample("s", "a", "m", 1, 5.0),
            Sample("s", "b", "m", 1, 10.0),
            Sample("s", "b", "m", 2, 99.0),
        ]
    )
    ratio = figures.ratio(("a", "m"), ("b", "m"))
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high, ratio.count) == (0.5, 0.5, 0.5, 2)
    assert figures.ratio(("a", "m"), ("b", "other")) is None


def test_the_deciding_ratios_divide_what_their_names_say() -> None:
    values = {
        ("soloist", "decode_tok_s"): 9.6, (BARE, "decode_tok_s"): 10.0,
        ("soloist", "steady8_tok_s"): 36.0, (BARE, "steady8_tok_s"): 37.5,
        ("soloist", "throughput8_tok_s"): 34.0, ("mlx-lm", "throughput8_tok_s"): 32.0,
        ("soloist", "throughput8_seeded_tok_s"): 33.0, ("mlx-lm", "throughput8_seeded_tok_s"): 10.0,
        ("soloist", "throughput8_mixed_tok_s"): 31.0, ("soloist", "throughput8_uniform_tok_s"): 34.0,
        ("soloist", "ttft_warm_ms"): 300.0, ("soloist", "ttft_cold_ms"): 8000.0,
        ("soloist", "ttft_restart_ms"): 600.0, ("soloist", "restart_cold_ms"): 8000.0,
        ("soloist", "join_gap_ms"): 280.0, ("soloist", "join_median_itl_ms"): 100.0, ("mlx-lm", "join_gap_ms"): 7000.0,
        ("soloist", "next_after_drop_ttft_ms"): 1800.0, ("soloist", "next_idle_ttft_ms"): 1500.0,
        ("soloist", "shared_prefix4_last_ttft_ms"): 9600.0, ("soloist", "one_cold_ttft_ms"): 8000.0,
    }  # fmt: skip
    figures = Figures(Sample("s", server, metric, 0, value) for (server, metric), value in values.items())
    told = {line.name: line.value.median for line in lines(figures, "soloist", ["mlx-lm"]) if line.value is not None}
    assert told == pytest.approx(
        {
            "decode_vs_bare_loop": 0.96,
            "throughput8_vs_bare_loop8": 0.96,
            "throughput8_vs_mlx_lm": 1.0625,
            "throughput8_seeded_vs_mlx_lm": 3.3,
            "throughput8_mixed_vs_uniform": 31 / 34,
            "ttft_warm_vs_cold": 0.0375,
            "ttft_restart_vs_cold": 0.075,
            "join_gap_vs_median_itl": 2.8,
            "join_gap_vs_mlx_lm": 0.04,
            "drop_in_prefill_next_ttft_vs_idle": 1.2,
            "shared_prefix4_vs_one_cold": 1.2,
        }
    )


@pytest.mark.parametrize(("target", "value", "kept"), [(Target(least=3), 3.0, True), (Target(most=3), 3.1, False)])
def test_a_bound_includes_itself(target: Target, value: float, kept: bool) -> None:
    assert target.kept(value) is kept


def test_the_rate_of_a_stream_counts_the_servers_tokens_and_not_the_pieces() -> None:
    assert stream_rate(outcome(1.0, 2.0, 3.0, tokens=21)) == 10.0
    assert stream_rate(outcome(1.0, 2.0, 3.0)) == 1.0


def test_rows_of_one_step_that_arrive_a_moment_apart_all_count() -> None:
    streams = [outcome(*(step + row / 100 for step in range(1, 11))) for row in range(8)]
    assert steady_rate(streams) == pytest.approx(8.0)


def test_only_the_time_in_which_all_decode_is_steady() -> None:
    early = outcome(*(0.1 * step for step in range(1, 40)), 5.0, 6.0, 7.0, 8.0, 9.0)
    late = outcome(*(float(step) for step in range(5, 10)))
    assert steady_rate([early, late]) == pytest.approx(2.0, rel=0.2)
    assert steady_rate([outcome(1.0, 2.0, 3.0), outcome(7.0, 8.0, 9.0)]) is None


def test_the_gap_that_a_newcomer_makes_is_told_from_those_before_and_after() -> None:
    running = outcome(1.0, 2.0, 3.0, 9.0, 10.0, 14.0)
    joined = outcome(9.5, 10.5, sent=3.5)
    assert split([running], joined) == ([1.0, 1.0], [6.0, 1.0])


@pytest.mark.parametrize(("part", "value"), [(0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100)])
def test_a_quantile_is_one_of_the_values(part: float, value: int) -> None:
    assert quantile(range(1, 101), part) == value


def test_events_are_found_however_the_bytes_are_cut() -> None:
    stream = b': keep-alive\n\ndata: {"a": 1}\n\ndata:{"b": 2}\r\n\r\ndata: [DONE]\n\n'
    for cut in range(len(stream)):
        events = Events()
        assert events.feed(stream[:cut]) + events.feed(stream[cut:]) == [b'{"a": 1}', b'{"b": 2}', b"[DONE]"]


def test_an_error_event_is_no_text() -> None:
    seen = Seen(0.0)
    assert seen.take(b'{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}', 1.0) is False
    assert seen.take(b'{"choices": [{"index": 0, "delta": {"content": "a"}}]}', 2.0) is True
    assert seen.take(b'{"error": {"message": "no"}}', 3.0) is False
    assert seen.take(b'{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}', 4.0) is False
    told = seen.outcome(5.0)
    assert (told.arrivals_s, told.text, told.prompt_tokens, told.tokens) == ((2.0,), "a", 5, 1)
    assert told.error is not None and "no" in told.error


def test_prompts_are_as_long_as_the_gauge_says_and_the_same_for_every_server() -> None:
    gauge = fit((40, 100), (120, 260))
    assert (gauge.per_word, gauge.extra) == (2.0, 20.0)
    assert len(Prompts(1, "a", gauge).text(220).split()) == 100
    assert Prompts(1, "a", gauge).text(220) == Prompts(1, "a", gauge).text(220)
    assert Prompts(1, "a", gauge).text(220)[:40] != Prompts(1, "b", gauge).text(220)[:40]
    assert Prompts(1, "a", Gauge()).continued("x y", 3).startswith("x y ")


def test_noise_is_the_work_of_all_cores_less_our_own() -> None:
    before = (10.0, 100.0, {1: 5.0})
    after = (20.0, 112.0, {1: 9.0, 2: 3.0})  # process 2 was started in between
    assert Noise.between(before, after) == pytest.approx(0.5)
    assert Noise.between((10.0, None, {}), (20.0, None, {})) is None


def test_growth_looks_at_the_last_half() -> None:
    assert growth([(0, 0.0), (100, 50.0), (200, 60.0), (300, 60.5), (400, 61.0)]) == pytest.approx(0.5)


def test_active_memory_is_read_from_a_metrics_page() -> None:
    page = "# HELP soloist_active_memory_bytes x\nsoloist_active_memory_bytes 2097152\nother 1\n"
    assert active_mib(page) == 2.0
    assert active_mib("other_bytes 1\n") is None
