"""Prefill: a prompt is fed to the network in chunks, all but its last id, which the batch takes as the row's input.

Runs on the executor thread only.
"""

from collections.abc import Sequence as Several
from dataclasses import dataclass

import mlx.core as mx

from . import kv
from .model import LoadedModel
from .sequence import Sequence


@dataclass(slots=True, eq=False)
class Prefill:
    """One prompt on its way into the batch, for one row or for the `n` choices that fork from it.

    `apart`: it was in company when something failed, and is served by itself to find out whether it is to blame.
    """

    ids: list[int]
    rows: list[Sequence]
    layers: kv.Layers | None = None
    done: int = 0
    apart: bool = False

    @property
    def remaining(self) -> int:
        return len(self.ids) - 1 - self.done

    def begin(self, layers: kv.Layers, cached: int) -> None:
        """Take caches that hold the first `cached` ids already, and have them make room for the whole prompt once."""
        self.layers, self.done = layers, cached
        kv.reserve(layers, len(self.ids) + 1)
        for row in self.rows:
            row.cached_tokens = min(cached, len(row.request.ids) - 1)

    @property
    def through(self) -> bool:
        """Whether all that has to be fed has been fed, and somebody still wants it."""
        return self.layers is not None and self.remaining <= 0 and not self.abandoned

    @property
    def abandoned(self) -> bool:
        return all(row.ended for row in self.rows)

    def advance(self, model: LoadedModel, chunk: int) -> int:
        """Feed up to `chunk` ids and evaluate their keys and values. Returns how many were fed."""
        fed = min(chunk, self.remaining)
        if fed > 0 and self.layers is not None:
            model.forward(mx.array([self.ids[self.done : self.done + fed]]), self.layers, [self.rows[0].slot])
            mx.eval(kv.arrays(self.layers))
            self.done += fed
        return fed


def advance_together(model: LoadedModel, group: Several[Prefill]) -> int:
    """Feed all that is left of several short prompts in one forward. Returns how many ids were fed.

    The prompts' own caches are replaced only at the end: after an exception they are what they were.
    """
    counts = [job.remaining for job in group]
    longest = max(counts)
    if longest == 0:
        return 0
    layers = kv.merge([job.layers for job in group if job.layers is not None])
    kv.pad_right(layers, counts)
    ids = [
        job.ids[job.done : job.done + count] + [0] * (longest - count) for job, count in zip(group, counts, strict=True)
    ]
    model.forward(mx.array(ids), layers, [job.rows[0].slot for job in group])
    kv.close_gaps(layers)
    mx.eval(kv.arrays(layers))
    for index, job in enumerate(group):
        job.layers = kv.extract(layers, index)
        job.done += counts[index]
    return sum(counts)
