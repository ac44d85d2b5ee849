"""What crosses the thread: commands in, events out. Frozen, plain Python: no array is ever among them."""

import time
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from ..lora.info import AdapterInfo
from ..sampler.params import SamplingParams

Finish = Literal["stop", "length"]
FailureKind = Literal["executor_failed", "deadline", "overloaded", "draining", "invalid", "too_large"]


class Matcher(Protocol):
    """Follows one choice through a grammar. Made in front of the thread, used on the executor thread only."""

    @property
    def hurried(self) -> bool:
        """Whether it has begun to close the answer because its tokens run out: complete, but cut all the same."""

    def mask(self) -> "np.ndarray[Any, np.dtype[np.uint32]]":
        """uint32[ceil(V / 32)]: the ids that may come next, lowest bit first. Raises when the grammar fails."""

    def accept(self, token: int) -> bool:
        """Take a drawn id; True when nothing may follow it. Raises when the grammar does not allow it."""

    def copy(self) -> "Matcher":
        """The same state, to go on from independently."""


class Grammar(Protocol):
    """What a request's output must match; checked and compiled before it crosses the thread."""

    def matcher(self) -> Matcher:
        """A matcher at the beginning, for one choice."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to continue, `n` times.

    ids: prompt token ids, at least one, all inside the vocabulary. max_tokens: at least 1 (end token included).
    end_ids: a sampled id among these ends the choice with finish "stop". logprobs: None is off, k asks for the
    sampled token's own log-probability and the k most likely alternatives. deadline: `time.monotonic()` seconds.
    adapter: name of a loaded adapter, or None for the base model. probe: health's own, admitted at once.
    grammar: what each choice's ids must spell, or None. asked: when it came, for the time that it waits.
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
    grammar: Grammar | None = None
    asked: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a request, or one of its choices (a stop string was found in its text)."""

    id: str
    choice: int | None = None


@dataclass(frozen=True, slots=True)
class LoadAdapter:
    """Load an adapter folder under a name. Answered by an AdapterReply with the same ticket."""

    ticket: str
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class UnloadAdapter:
    """Forget an adapter's name. Rows that use it go on. Answered by an AdapterReply."""

    ticket: str
    name: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End the thread: whatever still runs fails with `draining`."""


Command = Request | Cancel | LoadAdapter | UnloadAdapter | Stop


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


@dataclass(frozen=True, slots=True)
class AdapterReply:
    """What became of a command about adapters: the adapter concerned, or why it was refused."""

    ticket: str
    adapter: AdapterInfo | None = None
    error: str | None = None


Event = Delta | Progress | Failure
"""What a request's stream yields."""
