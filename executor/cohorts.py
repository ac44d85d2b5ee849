"""Rows in decode, in as many batches as their lengths call for.

Runs on the executor thread only. In one batch every row is padded to the longest, and each step reads the padding of
all of them: beside one row of 4,000 ids, four of 100 read forty times what they hold, and all of it is written when the
long row joins. A step reads the weights once a batch, so another batch pays where the padding that it saves is large
beside the weights.
"""

from collections.abc import Sequence as Several
from itertools import chain

from .batch import Batch, OnLeave
from .model import LoadedModel
from .sequence import Sequence


class Cohorts:
    """The batches of this life of the thread; nearly always there is one."""

    MOST_PADDING = 0.5  # bytes of padding in a batch, as a part of the weights' bytes

    def __init__(self, model: LoadedModel, on_leave: OnLeave) -> None:
        self.model = model
        self.batches: list[Batch] = []
        self._on_leave = on_leave

    @property
    def rows(self) -> list[Sequence]:
        return list(chain.from_iterable(batch.rows for batch in self.batches))

    @property
    def computed(self) -> list[Sequence]:
        """Every row that the device may still be working on."""
        return list(chain.from_iterable(batch.computed for batch in self.batches))

    @property
    def in_flight(self) -> list[int]:
        """How many rows each launched step has."""
        return [len(batch.flight.rows) for batch in self.batches if batch.flight is not None]

    @property
    def idle(self) -> bool:
        return all(batch.idle for batch in self.batches)

    def place(self, rows: Several[Sequence]) -> Batch:
        """The batch that these rows, prefilled alike, shall join."""
        self.batches = [batch for batch in self.batches if not batch.idle]
        facts = self.model.facts
        if not facts.batched and self.batches:
            return self.batches[0]
        most = self.MOST_PADDING * facts.weights_bytes
        fitting = [(waste, index) for index, waste in enumerate(self._wastes(rows)) if waste <= most]
        if fitting:
            return self.batches[min(fitting)[1]]
        self.batches.append(Batch(self.model, self._on_leave))
        return self.batches[-1]

    def _wastes(self, rows: Several[Sequence]) -> list[int]:
        """For each batch, bytes of padding that a step would read with these rows in it."""
        wastes = []
        for batch in self.batches:
            lengths = [row.fed_count for row in (*batch.rows, *rows)]
            wastes.append((max(lengths) * len(lengths) - sum(lengths)) * self.model.facts.token_bytes)
        return wastes

    def cancel(self, request_id: str, choice: int | None) -> None:
        for batch in self.batches:
            batch.cancel(request_id, choice)
