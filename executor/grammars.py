"""Rows that must spell what a grammar allows: their masks before a draw, their matchers after it.

Runs on the executor thread only. A grammar that fails ends its own row.
"""

from collections.abc import Sequence as Several
from dataclasses import replace

import mlx.core as mx
import numpy as np

from ..sampler.masks import Masks
from .request import Delta, Event, Failure
from .sequence import Sequence

FAILED = "the grammar of this request failed; nothing else was affected"


def check_grammars(rows: Several[Sequence]) -> list[Event]:
    """Compute each grammar's next mask, and end the rows for which that is impossible."""
    failures: list[Event] = []
    for row in rows:
        if row.matcher is not None and not row.ended:
            try:
                row.mask = row.matcher.mask()
            except Exception:
                row.ended = True
                failures.append(Failure(row.request.id, "executor_failed", FAILED, row.choice))
    return failures


def masks_of(rows: Several[Sequence]) -> Masks | None:
    """The masks that `check_grammars` has computed, for the rows that have one."""
    places = tuple(place for place, row in enumerate(rows) if row.mask is not None)
    if not places:
        return None
    return Masks(mx.array(np.stack([rows[place].mask for place in places])), places)


def follow(row: Sequence, event: Delta) -> Event:
    """Take the drawn id into the row's grammar; when nothing may follow it, the row ends here."""
    assert row.matcher is not None
    try:
        over = [row.matcher.accept(token) for token in event.ids]
    except Exception:
        return Failure(row.request.id, "executor_failed", FAILED, row.choice)
    if not any(over):
        return event
    return replace(event, finish="length" if row.matcher.hurried else "stop")
