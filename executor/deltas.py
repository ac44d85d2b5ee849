"""Reads a finished draw back from the device and says, row by row, what became of it.

Runs on the executor thread only.
"""

from collections.abc import Sequence as Rows


from ..sampler.chain import Sampled
from .request import Delta, Event, Failure, Finish, Logprobs
from .sequence import Sequence

NO_DISTRIBUTION = "the model's logits for this request were not a distribution (NaN, or nothing allowed)"


def deltas_of(rows: Rows[Sequence], sampled: Sampled) -> list[Event]:
    """One event a row that is still open. Blocks until the draw has been computed."""
    ids: list[int] = sampled.ids.tolist()
    fine: list[bool] = sampled.ok.tolist()
    logprobs = _LogprobTable(sampled) if any(row.request.logprobs is not None for row in rows) else None
    events: list[Event] = []
    for index, row in enumerate(rows):
        if row.ended:
            continue
        if fine[index]:
            events.append(_delta(row, ids[index], logprobs.row(index, row) if logprobs else ()))
        else:
            row.ended = True
            events.append(Failure(row.request.id, "executor_failed", NO_DISTRIBUTION, row.choice))
    return events


def _delta(row: Sequence, token: int, logprobs: tuple[Logprobs, ...]) -> Delta:
    request = row.request
    if token in request.end_ids:
        row.ended = True
        return Delta(request.id, row.choice, (), (), "stop", token, row.cached_tokens)
    row.generated.append(token)
    finish: Finish | None = "length" if len(row.generated) >= request.max_tokens else None
    row.ended = finish is not None
    return Delta(request.id, row.choice, (token,), logprobs, finish, None, row.cached_tokens)


class _LogprobTable:
    """The draw's log-probabilities as plain lists, converted once for all rows."""

    def __init__(self, sampled: Sampled) -> None:
        assert sampled.logprobs is not None
        self.ids: list[int] = sampled.ids.tolist()
        self.own: list[float] = sampled.logprobs.tolist()
        self.top_ids: list[list[int]] | None = None
        self.top: list[list[float]] = []
        if sampled.top_ids is not None and sampled.top_logprobs is not None:
            self.top_ids, self.top = sampled.top_ids.tolist(), sampled.top_logprobs.tolist()

    def row(self, index: int, row: Sequence) -> tuple[Logprobs, ...]:
        wanted = row.request.logprobs
        if wanted is None:
            return ()
        top: tuple[tuple[int, float], ...] = ()
        if wanted and self.top_ids is not None:
            top = tuple(zip(self.top_ids[index][:wanted], self.top[index][:wanted], strict=True))
        return (Logprobs(self.ids[index], self.own[index], top),)
