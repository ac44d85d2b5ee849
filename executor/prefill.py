"""Prefill: a prompt is fed to the network in chunks, all but its last id, which the batch takes as the row's input.

Runs on the executor thread only.
"""

from dataclasses import dataclass

import mlx.core as mx

from . import kv
from .model import LoadedModel
from .sequence import Sequence


@dataclass(slots=True, eq=False)
class Prefill:
    """One prompt on its way into the batch, for one row or for the `n` choices that fork from it."""

    ids: list[int]
    rows: list[Sequence]
    layers: kv.Layers | None = None
    done: int = 0

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
