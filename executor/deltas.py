"""Reads a finished draw back from the device and says, row by row, what became of it.

Runs on the executor thread only.
"""

from collections.abc import Sequence as Several
from typing import Any

import mlx.core as mx

from ..sampler.chain import Sampled
from .grammars import follow
from .request import Delta, Event, Failure, Finish, Logprobs
from .sequence import Sequence

NO_DISTRIBUTION = "the model's logits for this request were not a distribution (NaN, or nothing allowed)"


def deltas_of(rows: Several[Sequence], sampled: Sampled) -> list[Event]:
    """One event a row that is still open. Blocks until the draw has been computed."""
    ids, fine = _read(sampled.ids), _read(sampled.ok)
    logprobs = _LogprobTable(sampled) if any(row.request.logprobs is not None for row in rows) else None
    events: list[Event] = []
    for index, row in enumerate(rows):
        if not row.ended:
            told = logprobs.row(index, row) if logprobs else ()
            events.append(_event(row, ids[index], told) if fine[index] else _fault(row))
    # Rows change only now that nothing can fail any more: no token is counted that was not handed out.
    return [_settle(row, event) for row, event in zip([r for r in rows if not r.ended], events, strict=True)]


def _event(row: Sequence, token: int, logprobs: tuple[Logprobs, ...]) -> Delta:
    request = row.request
    if token in request.end_ids:
        return Delta(request.id, row.choice, (), (), "stop", token, row.cached_tokens)
    finish: Finish | None = "length" if len(row.generated) + 1 >= request.max_tokens else None
    return Delta(request.id, row.choice, (token,), logprobs, finish, None, row.cached_tokens)


def _fault(row: Sequence) -> Failure:
    return Failure(row.request.id, "executor_failed", NO_DISTRIBUTION, row.choice)


def _settle(row: Sequence, event: Event) -> Event:
    """Count the token in; a row's grammar may end the row with it."""
    if row.matcher is not None and isinstance(event, Delta):
        event = follow(row, event)
    match event:
        case Delta(ids=ids, finish=finish, ended_by=ended_by):
            row.generated += ids
            row.setbacks = 0
            row.ended, row.ended_by = finish is not None, ended_by
        case _:
            row.ended = True
    return event


def _read(array: mx.array) -> list[Any]:
    """Array to nested lists: here the thread waits for the device."""
    values = array.tolist()
    assert isinstance(values, list)
    return values


class _LogprobTable:
    """The draw's log-probabilities as plain lists, converted once for all rows."""

    def __init__(self, sampled: Sampled) -> None:
        assert sampled.logprob is not None
        self.ids: list[int] = _read(sampled.ids)
        self.own: list[float] = _read(sampled.logprob)
        self.top_ids: list[list[int]] | None = None
        self.top: list[list[float]] = []
        if sampled.top_ids is not None and sampled.top_logprobs is not None:
            self.top_ids, self.top = _read(sampled.top_ids), _read(sampled.top_logprobs)

    def row(self, index: int, row: Sequence) -> tuple[Logprobs, ...]:
        wanted = row.request.logprobs
        if wanted is None:
            return ()
        top: tuple[tuple[int, float], ...] = ()
        if wanted and self.top_ids is not None:
            top = tuple(zip(self.top_ids[index][:wanted], self.top[index][:wanted], strict=True))
        return (Logprobs(self.ids[index], self.own[index], top),)
