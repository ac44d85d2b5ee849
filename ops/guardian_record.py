"""What a guardian remembers: a patrol log of JSON lines, and a tally that becomes a report twice a day."""

import json
import logging
import logging.handlers
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from .guardian_probe import Reading
from .guardian_verdict import Verdict

LOG_BYTES = 16 * 1024**2
LOGS_KEPT = 5


class PatrolLog:
    """One JSON line for each visit, action and report."""

    def __init__(self, file: Path | None) -> None:
        self._logger = logging.Logger("soloist.guardian.patrol")
        handler: logging.Handler = logging.StreamHandler()
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            handler = logging.handlers.RotatingFileHandler(file, maxBytes=LOG_BYTES, backupCount=LOGS_KEPT)
        self._logger.addHandler(handler)
        self.close = handler.close

    def write(self, event: str, name: str | None = None, **more: Any) -> None:
        line = {"at": datetime.now().astimezone().isoformat(timespec="milliseconds"), "event": event}
        if name is not None:
            line["name"] = name
        self._logger.info("%s", json.dumps(line | more, default=str))

    def visit(self, name: str, url: str, verdict: Verdict, misses: int, reading: Reading) -> None:
        health = reading.health or {}
        facts = ("state", "steps", "last_step_age_s", "oldest_job_age_s", "queue_depth", "running", "generation")
        self.write(
            "visit",
            name,
            url=url,
            verdict=verdict.word,
            reason=verdict.reason,
            misses=misses,
            **{f"{probe}_ms": round(found.seconds * 1000, 1) for probe, found in reading.probes().items()},
            **{fact: health[fact] for fact in facts if fact in health},
        )


@dataclass(slots=True)
class Tally:
    """One instance since the last report. red_s: seconds during which it was red."""

    visits: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)
    token_s: list[float] = field(default_factory=list)
    red_s: float = 0.0
    worst: str = ""

    def visit(self, verdict: Verdict, reading: Reading) -> None:
        self.visits[verdict.word] += 1
        if verdict.miss:
            self.worst = f"{verdict.word}: {verdict.reason}"
        if reading.completion is not None and reading.completion.ok:
            self.token_s.append(reading.completion.seconds)

    def line(self, name: str) -> str:
        visits = sum(self.visits.values())
        well = 100 * self.visits["well"] / visits if visits else 0.0
        words = ", ".join(f"{word} {count}" for word, count in self.visits.most_common())
        parts = [f"{name}: well in {well:.1f} % of {visits} visits ({words or 'none'})", f"red for {self.red_s:.0f} s"]
        if self.token_s:
            parts.append(
                f"a token takes {_quantile(self.token_s, 0.5):.2f} s, 95 % {_quantile(self.token_s, 0.95):.2f} s"
            )
        if self.actions:
            parts.append("actions: " + ", ".join(f"{outcome} {n}" for outcome, n in self.actions.items()))
        if self.worst:
            parts.append(f"last fault: {self.worst}")
        return "; ".join(parts)


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def write_report(tallies: dict[str, Tally], since: datetime, until: datetime, folder: Path | None) -> str:
    """The report's text; also a file of its own in `folder`."""
    head = f"Guardian's report, {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M}"
    text = "\n".join([head, *(tally.line(name) for name, tally in tallies.items()), ""])
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"report-{until:%Y%m%d-%H%M%S}.txt").write_text(text)
    return text


def next_report(now: datetime, clocks: Sequence[str]) -> datetime:
    """The first of the given local times after `now`."""
    moments = [
        now.replace(hour=int(clock[:2]), minute=int(clock[3:]), second=0, microsecond=0) + timedelta(days=day)
        for day in (0, 1)
        for clock in clocks
    ]
    return min(moment for moment in moments if moment > now)
