"""What a request asks for once it is through the door: checked, tokenised, ready for the executor."""

from dataclasses import dataclass, replace
from typing import Any

from ..executor.request import Grammar, Request
from ..sampler.keys import SEED_MAX, SEED_MIN
from ..sampler.params import SamplingParams

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a client may ask for on either endpoint. max_tokens: None is up to the context. sampling: seed resolved."""

    sampling: SamplingParams
    n: int = 1
    stops: tuple[str, ...] = ()
    max_tokens: int | None = None
    stream: bool = False
    include_usage: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """prompts: token ids, one entry a prompt. limits: most new tokens of each.

    logprobs: None is off; k asks for the k most likely alternatives of each token. ignored: names of unheard-of fields.
    adapter: None is the model itself. grammar: what every choice must spell, or None.
    """

    id: str
    created: int
    model: str
    fingerprint: str
    chat: bool
    wishes: Wishes
    prompts: tuple[Ids, ...]
    limits: tuple[int, ...]
    end_ids: frozenset[int]
    logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    ignored: tuple[str, ...] = ()
    adapter: str | None = None
    grammar: Grammar | None = None

    @property
    def seed(self) -> int:
        return self.wishes.sampling.seed

    @property
    def size(self) -> int:
        """How many choices the answer has."""
        return len(self.prompts) * self.wishes.n

    def requests(self, deadline: float | None) -> list[Request]:
        """One executor request for each prompt.

        Prompt j draws with seed + j, so that two equal prompts of one request do not get one and the same answer, and
        each can be asked for again alone.
        """
        sampling = self.wishes.sampling
        return [
            Request(
                id=f"{self.id}-{index}",
                ids=ids,
                max_tokens=limit,
                sampling=replace(sampling, seed=_shift(sampling.seed, index)),
                end_ids=self.end_ids,
                n=self.wishes.n,
                logprobs=self.logprobs,
                adapter=self.adapter,
                grammar=self.grammar,
                deadline=deadline,
            )
            for index, (ids, limit) in enumerate(zip(self.prompts, self.limits, strict=True))
        ]


def _shift(seed: int, by: int) -> int:
    return (seed - SEED_MIN + by) % (SEED_MAX - SEED_MIN + 1) + SEED_MIN
