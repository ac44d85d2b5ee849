"""What the bench's load generator is asked and what it answers: requests with cues, arrival times. Plain values."""

from dataclasses import dataclass, field
from typing import Any

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Cue:
    """A moment in the life of one shot of the same load.

    shot: its place. events: pieces of text it must have had; 0 is when it is sent, None when it has ended for whatever
    reason (which is also the end of every other wait for it). plus_s: seconds after that.
    """

    shot: int
    events: int | None = None
    plus_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Shot:
    """One request. after: when to send it (None is at once). leave: when to hang up (None is never)."""

    body: dict[str, Any]
    path: str = COMPLETIONS
    after: Cue | None = None
    leave: Cue | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """Shots for one server. probes: paths to GET over and over, one at a time, while the shots run."""

    base_url: str
    shots: tuple[Shot, ...]
    probes: tuple[str, ...] = ()
    probe_every_s: float = 0.05
    headers: dict[str, str] = field(default_factory=dict)
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one shot. All times are seconds since the load began.

    arrivals_s: when each data event that carried text was read. completion_tokens: as the server counts, or None.
    left: we hung up. error: what the server or the connection said instead of an answer.
    """

    status: int
    sent_s: float
    ended_s: float
    arrivals_s: tuple[float, ...] = ()
    text: str = ""
    finish: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    left: bool = False
    error: str | None = None

    @property
    def ttft_s(self) -> float:
        """From sending to the first text. Raises ValueError if there was none."""
        if not self.arrivals_s:
            raise ValueError(f"no text came (status {self.status}, finish {self.finish!r})")
        return self.arrivals_s[0] - self.sent_s

    @property
    def tokens(self) -> int:
        """New tokens: the server's count where it gives one, else one for each piece of text."""
        return len(self.arrivals_s) if self.completion_tokens is None else self.completion_tokens


@dataclass(frozen=True, slots=True)
class Report:
    """outcomes: in the order of the shots. probes_s: how long each GET took. probe_faults: how many were not 200."""

    outcomes: tuple[Outcome, ...]
    probes_s: dict[str, tuple[float, ...]]
    probe_faults: dict[str, int]
    wall_s: float
