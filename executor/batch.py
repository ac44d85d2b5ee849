"""The batch of rows that decode together, one step ahead of what has been read back.

Runs on the executor thread only. A step launches the next draw of every row before it reads the last one, so the
device computes while Python hands out ids. A row joins with the last id of its prompt as its next input.
"""

from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import dataclass

import mlx.core as mx

from ..sampler.chain import Sampled, sample
from ..sampler.rows import Rows, RowSpec
from . import kv
from .deltas import deltas_of
from .grammars import check_grammars, masks_of
from .model import LoadedModel
from .request import Event
from .sequence import Sequence

OnLeave = Callable[[Sequence, kv.Layers, int], None]
"""Told of a row that leaves, the batch's caches and its place in them, while they still hold it. Must not raise."""


def forget(row: Sequence, layers: kv.Layers, index: int) -> None:
    """Keep nothing of a row that leaves."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A launched draw: the rows that it was made for, and its results, still being computed."""

    rows: tuple[Sequence, ...]
    sampled: Sampled


class Batch:
    """Rows in decode."""

    def __init__(self, model: LoadedModel, on_leave: OnLeave = forget) -> None:
        self.model = model
        self.on_leave = on_leave
        self.rows: list[Sequence] = []
        self.flight: Flight | None = None
        self.untold: list[Event] = []
        self._landing: Flight | None = None
        self._layers: kv.Layers = []
        self._inputs: mx.array | None = None
        self._sampling: Rows | None = None

    @property
    def idle(self) -> bool:
        return not self.rows and self.flight is None

    @property
    def computed(self) -> list[Sequence]:
        """Every row that the device may still be working on."""
        return [*self.rows, *(self.flight.rows if self.flight else ())]

    def join(self, rows: Several[Sequence], layers: Several[kv.Layers]) -> None:
        """Take prefilled rows, each with the caches of its prompt; choices that fork share one and the same."""
        self._shed()
        inputs = mx.array([row.ids[-1] for row in rows], mx.uint32)
        if not self.model.facts.batched:
            assert not self.rows and len(rows) == 1, "this model serves one row at a time"
            self._layers = layers[0]
        elif self.rows:
            kv.extend(self._layers, kv.merge(layers))
        else:
            self._layers = kv.merge(layers)
        self._inputs = inputs if self._inputs is None else mx.concatenate([self._inputs, inputs])
        if self._sampling is None:
            self._sampling = Rows(self.model.facts.vocab_size)
        self._sampling.add(spec_of(row) for row in rows)
        self.rows.extend(rows)

    def step(self) -> list[Event]:
        """Launch one draw for every row that wants more; return the events of the draw launched before it."""
        if self._must_read_first():
            return self._step_in_order()
        self._shed()
        # Until its events exist the landed draw stays known: if anything raises, `abandon` must find its rows.
        self._landing = self.flight
        self.flight = self._launch() if self.rows else None
        return self._land()

    def _must_read_first(self) -> bool:
        """What a grammar allows depends on the id just drawn; and a first token is not held up by a second one."""
        newcomer = self.flight is not None and any(not row.generated for row in self.flight.rows)
        return newcomer or any(row.matcher for row in self.rows)

    def _step_in_order(self) -> list[Event]:
        """Read the last draw before launching the next."""
        self._landing, self.flight = self.flight, None
        # The rows have counted these tokens in: should the launch fail, they must still be handed out.
        self.untold = self._land()
        self.untold += check_grammars(self.rows)
        self._shed()
        self.flight = self._launch() if self.rows else None
        return self.take_untold()

    def take_untold(self) -> list[Event]:
        """Events that a step had ready when it failed."""
        events, self.untold = self.untold, []
        return events

    def _land(self) -> list[Event]:
        events = deltas_of(self._landing.rows, self._landing.sampled) if self._landing else []
        self._landing = None
        return events

    def _launch(self) -> Flight:
        assert self._inputs is not None and self._sampling is not None
        logits = self.model.forward(self._inputs[:, None], self._layers, [row.slot for row in self.rows])[:, -1, :]
        keys = self._sampling.keys([row.launched for row in self.rows])
        sampled = sample(logits, self._sampling, keys, masks_of(self.rows))
        self._sampling.record(sampled.ids)
        mx.async_eval(sampled.arrays(), self._sampling.pending())
        self._inputs = sampled.ids
        for row in self.rows:
            row.launched += 1
        return Flight(tuple(self.rows), sampled)

    def _shed(self) -> None:
        """Drop the rows that want no further draw. Their last one may still be in flight."""
        kept = [index for index, row in enumerate(self.rows) if row.wants_more]
        if len(kept) == len(self.rows):
            return
        for index, row in enumerate(self.rows):
            if not row.wants_more:
                self.on_leave(row, self._layers, index)
        self.rows = [self.rows[index] for index in kept]
        if not self.rows:
            self._layers, self._inputs, self._sampling = [], None, None
            return
        assert self._inputs is not None and self._sampling is not None
        kv.keep(self._layers, kept)
        self._inputs = self._inputs[mx.array(kept)]
        self._sampling.keep(kept)

    def cancel(self, request_id: str, choice: int | None) -> None:
        for row in self.rows:
            if row.request.id == request_id and choice in (None, row.choice):
                row.ended = True

    def abandon(self) -> list[Sequence]:
        """Drop every cache and the draw in flight; the rows that had not ended, rewound to what was delivered."""
        drawn = [row for flight in (self._landing, self.flight) if flight for row in flight.rows]
        unfinished = [row for row in dict.fromkeys([*self.rows, *drawn]) if not row.ended]
        self.rows, self.flight, self._landing = [], None, None
        self._layers, self._inputs, self._sampling = [], None, None
        for row in unfinished:
            row.rewind()
        return unfinished


def spec_of(row: Sequence) -> RowSpec:
    """The row as the sampler wants it."""
    request = row.request
    return RowSpec(request.sampling, row.choice, request.ids, row.generated, request.logprobs)
