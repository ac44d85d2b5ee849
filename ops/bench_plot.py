"""Throughput and latency over concurrency, as an SVG 1.1 drawing that needs nothing to be made or seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from .bench_stats import Figures

PANELS = (
    ("new tokens a second, all streams", "throughput{}_tok_s"),
    ("median time between two tokens, ms", "itl{}_p50_ms"),
    ("median time to the first token, ms", "throughput{}_ttft_ms"),
)
COLOURS = ("#1f6feb", "#d1495b", "#2a9d8f", "#8e6c8a", "#e9a23b")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, SPACE = 300, 220, 56, 44, 40, 24


@dataclass(frozen=True, slots=True)
class Curve:
    """points: (streams, value, lowest, highest)."""

    name: str
    points: tuple[tuple[int, float, float, float], ...]


def curves(figures: Figures, metric: str, levels: Sequence[int]) -> list[Curve]:
    measured = figures.measured
    found = []
    for server in dict.fromkeys(server for server, _ in measured):
        there = [level for level in levels if (server, metric.format(level)) in measured]
        summaries = [(level, figures.summary(server, metric.format(level))) for level in there]
        if summaries:
            found.append(Curve(server, tuple((level, s.median, s.low, s.high) for level, s in summaries)))
    return found


def write_plot(figures: Figures, levels: Sequence[int], file: Path) -> None:
    file.write_text(draw(figures, levels), encoding="utf-8")


def draw(figures: Figures, levels: Sequence[int]) -> str:
    step = LEFT + WIDTH + SPACE
    parts = [
        _panel(title, curves(figures, metric, levels), levels, step * i) for i, (title, metric) in enumerate(PANELS)
    ]
    width, height = step * len(PANELS), TOP + HEIGHT + BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
        + "".join(parts)
        + "</svg>\n"
    )


def _panel(title: str, drawn: Sequence[Curve], levels: Sequence[int], x0: int) -> str:
    """One set of axes; the levels stand at equal distances, as they double."""
    top = 1.1 * max((high for curve in drawn for *_, high in curve.points), default=1.0) or 1.0

    def x(level: int) -> float:
        return x0 + LEFT + WIDTH * (levels.index(level) + 0.5) / len(levels)

    def y(value: float) -> float:
        return TOP + HEIGHT * (1 - value / top)

    parts = [f'<text x="{x0 + LEFT}" y="16" font-weight="bold">{escape(title)}</text>']
    for tick in range(5):
        value = top * tick / 4
        parts.append(_line(x0 + LEFT, y(value), x0 + LEFT + WIDTH, y(value), "#ddd"))
        parts.append(f'<text x="{x0 + LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    for level in levels:
        parts.append(f'<text x="{x(level):.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{level}</text>')
    parts.append(f'<text x="{x0 + LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 34}" text-anchor="middle">streams</text>')
    for place, curve in enumerate(drawn):
        colour = COLOURS[place % len(COLOURS)]
        dots = " ".join(f"{x(level):.1f},{y(value):.1f}" for level, value, *_ in curve.points)
        parts.append(f'<polyline points="{dots}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for level, value, low, high in curve.points:
            parts.append(_line(x(level), y(low), x(level), y(high), colour))
            parts.append(f'<circle cx="{x(level):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>')
        label_x = x0 + LEFT + 90 * place
        parts.append(f'<text x="{label_x}" y="34" fill="{colour}">{escape(curve.name)}</text>')
    return "".join(parts)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'
