"""What crosses the thread: commands in, events out. Frozen, plain Python: no array is ever among them."""

from dataclasses import dataclass, field
from typing import Literal

from ..sampler.params import SamplingParams

Finish = Literal["stop", "length"]
FailureKind = Literal["executor_failed", "deadline", "overloaded", "draining", "invalid", "too_large"]


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to continue, `n` times.

    ids: prompt token ids, at least one, all inside the vocabulary. max_tokens: at least 1 (end token included).
    end_ids: a sampled id among these ends the choice with finish "stop". logprobs: None is off, k asks for the
    sampled token's own log-probability and the k most likely alternatives. deadline: `time.monotonic()` seconds.
    adapter: name of a loaded adapter, or None for the base model. probe: health's own, admitted at once.
    """

    id: str
    ids: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    end_ids: frozenset[int] = frozenset()
    n: int = 1
    logprobs: int | None = None
    adapter: str | None = None
    deadline: float | None = None
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a request, or one of its choices (a stop string was found in its text)."""

    id: str
    choice: int | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """End the thread: whatever still runs fails with `draining`."""


Command = Request | Cancel | Stop


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log-probabilities (natural log) of one generated token under the model's own distribution."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """Newly generated ids of one choice. The end token is never among `ids`: it is counted by `ended_by`."""

    request: str
    choice: int
    ids: tuple[int, ...]
    logprobs: tuple[Logprobs, ...] = ()
    finish: Finish | None = None
    ended_by: int | None = None
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """A request waits (`queued` is its place, 1 is next) or has `done` of `total` prompt tokens prefilled."""

    request: str
    queued: int | None = None
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """The request (or one of its choices) ends here, with a reason that a client may read."""

    request: str
    kind: FailureKind
    message: str
    choice: int | None = None


Event = Delta | Progress | Failure
