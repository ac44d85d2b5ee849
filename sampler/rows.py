"""The rows of a batch as the sampler sees them: parameters as arrays, grouped by the work that they need.

Built on membership changes only, so that a step does no Python work a row. Runs on the executor thread only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from .keys import SAMPLE, Dice
from .params import SamplingParams
from .penalties import Bias, History, penalised, token_counts
from .plan import Group, plan


@dataclass(frozen=True, slots=True)
class RowSpec:
    """One choice of one request.

    prompt: its ids, for the repetition penalty. generated: ids drawn before it joined (after a restart, say).
    logprobs: None is off; k asks for the drawn token's log-probability and the k best alternatives.
    """

    params: SamplingParams
    choice: int = 0
    prompt: Sequence[int] = ()
    generated: Sequence[int] = ()
    logprobs: int | None = None


class Rows:
    """The batch, in row order. One owner, on one thread.

    `add` appends rows, `keep` drops the others and reorders, `record` counts what was drawn.
    """

    def __init__(self, vocab_size: int, specs: Iterable[RowSpec] = ()) -> None:
        self.vocab_size = vocab_size
        self.specs: list[RowSpec] = []
        self.history: History | None = None
        self.add(specs)

    def __len__(self) -> int:
        return len(self.specs)

    def add(self, specs: Iterable[RowSpec]) -> None:
        """Append rows. Raises ValueError for an id outside the vocabulary: MLX would write out of bounds."""
        new = list(specs)
        for spec in new:
            self._check(spec)
        joining = [(len(self.specs) + at, spec) for at, spec in enumerate(new) if penalised(spec.params)]
        self.specs += new
        if joining:
            at = [place for place, _ in joining]
            counts = mx.stack([token_counts(spec.generated, self.vocab_size) for _, spec in joining])
            prompt = mx.stack([token_counts(spec.prompt, self.vocab_size) > 0 for _, spec in joining])
            mx.eval(counts, prompt)
            if self.history is not None:
                at = [*self.history.at, *at]
                counts = mx.concatenate([self.history.counts, counts])
                prompt = mx.concatenate([self.history.prompt, prompt])
            self._remember(at, counts, prompt)
        self._arrange()

    def keep(self, places: Sequence[int]) -> None:
        """Keep the rows at these places, in this order."""
        self.specs = [self.specs[place] for place in places]
        if self.history is not None:
            old = {place: slot for slot, place in enumerate(self.history.at)}
            kept = [(at, old[place]) for at, place in enumerate(places) if place in old]
            slots = mx.array([slot for _, slot in kept], dtype=mx.int32)
            if kept:
                at = [at for at, _ in kept]
                self._remember(at, self.history.counts[slots], self.history.prompt[slots])
            else:
                self.history = None
        self._arrange()

    def record(self, ids: mx.array) -> None:
        """uint32[B] just drawn: rows with penalties count them on the device. Others cost nothing."""
        if self.history is not None:
            self.history.record(ids)

    def pending(self) -> list[mx.array]:
        """The lazy arrays that outlive a step; evaluate them with the step's ids."""
        return [] if self.history is None else [self.history.counts]

    def keys(self, draws: Sequence[int], purpose: int = SAMPLE) -> mx.array:
        """uint32[B, 2]: this step's keys. draws: [B], how many tokens each row has drawn before."""
        return self._unused if self._unused is not None else mx.array(self._dice.keys(draws, purpose))

    def _arrange(self) -> None:
        params = [spec.params for spec in self.specs]
        self._dice = Dice([row.seed for row in params], [spec.choice for spec in self.specs])
        # Greedy rows make no noise.
        self._unused = mx.zeros((len(params), 2), mx.uint32) if all(row.greedy for row in params) else None
        self.bias = Bias(params)
        self.groups: tuple[Group, ...] = plan(params, self.vocab_size)
        # Where row b stands when the groups are laid end to end; None when there is but one group.
        order = [place for group in self.groups for place in group.places]
        self.back = None if len(self.groups) < 2 else mx.array(np.argsort(order).astype(np.int32))
        self.asking = [at for at, spec in enumerate(self.specs) if spec.logprobs is not None]
        self.alternatives = min(self.vocab_size, max((spec.logprobs or 0 for spec in self.specs), default=0))

    def _remember(self, at: Sequence[int], counts: mx.array, prompt: mx.array) -> None:
        self.history = History(at, [self.specs[place].params for place in at], counts, prompt)

    def _check(self, spec: RowSpec) -> None:
        ids = [id for id, _ in spec.params.logit_bias]
        if penalised(spec.params):
            ids += [*spec.prompt, *spec.generated]
        if ids and not (min(ids) >= 0 and max(ids) < self.vocab_size):
            raise ValueError(f"token ids must be from 0 to {self.vocab_size - 1}")
        if not all(math.isfinite(bias) for _, bias in spec.params.logit_bias):
            raise ValueError("logit_bias must be finite")
