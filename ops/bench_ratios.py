"""The figures that decide: which metric over which, and where the line is drawn. Targets are for the demo model."""

from collections.abc import Iterator
from dataclasses import dataclass

from .bench_course import BARE
from .bench_stats import Figures, Summary


@dataclass(frozen=True, slots=True)
class Target:
    """least or most: the bound that the median should keep, or None."""

    least: float | None = None
    most: float | None = None

    def kept(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        if self.least is not None:
            return f">= {self.least:g}"
        return f"<= {self.most:g}" if self.most is not None else ""


NONE = Target()

# name, metric above, server below ("" is the same one), metric below, target
OWN: tuple[tuple[str, str, str, str, Target], ...] = (
    ("decode_vs_bare_loop", "decode_tok_s", BARE, "decode_tok_s", Target(least=0.95)),
    ("throughput8_vs_bare_loop8", "steady8_tok_s", BARE, "steady8_tok_s", Target(least=0.95)),
    ("throughput8_mixed_vs_uniform", "throughput8_mixed_tok_s", "", "throughput8_uniform_tok_s", Target(least=0.9)),
    ("ttft_warm_vs_cold", "ttft_warm_ms", "", "ttft_cold_ms", Target(most=0.05)),
    ("ttft_restart_vs_cold", "ttft_restart_ms", "", "restart_cold_ms", Target(most=0.10)),
    ("join_gap_vs_median_itl", "join_gap_ms", "", "join_median_itl_ms", Target(most=3)),
    ("join4_gap_vs_median_itl", "join4_gap_ms", "", "join4_median_itl_ms", Target(most=3)),
    ("join4_gap_vs_median_during", "join4_gap_ms", "", "join4_during_itl_ms", NONE),
    ("drop_in_prefill_next_ttft_vs_idle", "next_after_drop_ttft_ms", "", "next_idle_ttft_ms", Target(most=1.5)),
    ("shared_prefix4_vs_one_cold", "shared_prefix4_last_ttft_ms", "", "one_cold_ttft_ms", Target(most=1.3)),
)
# name up to "_vs_SERVER", metric, target; always against another server
OTHERS: tuple[tuple[str, str, Target], ...] = (
    ("decode", "decode_tok_s", NONE),
    ("throughput8", "throughput8_tok_s", NONE),
    ("throughput8_seeded", "throughput8_seeded_tok_s", Target(least=3)),
    ("ttft_cold", "ttft_cold_ms", NONE),
    ("ttft_warm", "ttft_warm_ms", NONE),
    ("join_gap", "join_gap_ms", NONE),
    ("join4_gap", "join4_gap_ms", NONE),
)
# plain figures with a target: name, metric, target
PLAIN: tuple[tuple[str, str, Target], ...] = (
    ("health_ready_p99_ms", "health_ready_p99_ms", Target(most=20)),
    ("v1_models_p99_ms", "v1_models_p99_ms", Target(most=20)),
    ("front_tok_s", "front_tok_s", Target(least=20_000)),
    ("decode_greedy_agreement_ratio", "decode_greedy_agreement_ratio", Target(least=1)),
)
MLX_LM = "mlx-lm"


@dataclass(frozen=True, slots=True)
class Line:
    """One figure that decides. value is None where it was not measured."""

    name: str
    value: Summary | None
    target: Target
    is_ratio: bool = True


def lines(figures: Figures, subject: str, others: list[str]) -> Iterator[Line]:
    """Every name is always there. `others` are compared with; mlx-lm's names are there without it too."""
    for name, above, below_server, below, target in OWN:
        yield Line(name, figures.ratio((subject, above), (below_server or subject, below)), target)
    for other in dict.fromkeys([*others, MLX_LM]):
        for name, metric, target in OTHERS:
            slug = "".join(letter if letter.isalnum() else "_" for letter in other.lower())
            yield Line(f"{name}_vs_{slug}", figures.ratio((subject, metric), (other, metric)), target)
    measured = figures.measured
    for name, metric, target in PLAIN:
        value = figures.summary(subject, metric) if (subject, metric) in measured else None
        yield Line(name, value, target, is_ratio=False)
