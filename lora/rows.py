"""Which adapter each row of the batch has, seen from one layer. Runs on the executor thread only.

A slot is an adapter's number in the bank (0 is the base model); a layer keeps a stack of those slots that change it,
its members. A Selection is made once for a batch and answers for all layers; most layers share their members.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

Members = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Seats:
    """index: (rows,) uint32, the place in the stack of each row, 0 for rows without one. active: (rows,) bool, None if
    every row has one. single: the place that all rows share, None if they differ or some have none."""

    index: mx.array
    active: mx.array | None
    single: int | None


class Selection:
    """The slots of the rows of one batch."""

    def __init__(self, slots: Sequence[int]) -> None:
        self.slots = tuple(slots)
        self.distinct = frozenset(slots)
        self._seats: dict[tuple[Members, int], Seats | None] = {}
        self._rows: dict[tuple[int, int], mx.array] = {}

    def seats(self, members: Members, count: int) -> Seats | None:
        """For a layer whose first axis is `count` long; None if no row has one of its members."""
        key = (members, count)
        if key not in self._seats:
            self._seats[key] = self._seat(members, count)
        return self._seats[key]

    def _seat(self, members: Members, count: int) -> Seats | None:
        if self.distinct.isdisjoint(members):
            return None
        where = {slot: place for place, slot in enumerate(members)}
        slots = self.spread(count)
        active = [slot in where for slot in slots]
        single = where[slots[0]] if len(self.distinct) == 1 else None
        index = mx.array([where.get(slot, 0) for slot in slots], dtype=mx.uint32)
        return Seats(index, None if all(active) else mx.array(active), single)

    def spread(self, count: int) -> tuple[int, ...]:
        """The slot of each entry of an axis of `count`: the rows, or all tokens of row 0, then all of row 1 ..."""
        rows = len(self.slots)
        if count == rows:
            return self.slots
        if count % rows:
            raise ValueError(f"a layer got {count} entries for {rows} rows: no telling which row each belongs to")
        return tuple(slot for slot in self.slots for _ in range(count // rows))

    def rows_of(self, slot: int, count: int) -> mx.array:
        """Indices (uint32) of the entries with this slot."""
        key = (slot, count)
        if key not in self._rows:
            entries = [place for place, other in enumerate(self.spread(count)) if other == slot]
            self._rows[key] = mx.array(entries, dtype=mx.uint32)
        return self._rows[key]


class Rows:
    """What all adapted layers of a model look at: the selection of this forward, or None for the base model alone.

    reached: while a list, layers that changed something note their name in it (the bank's proof after a load).
    """

    def __init__(self) -> None:
        self.current: Selection | None = None
        self.reached: set[str] | None = None

    def note(self, name: str) -> None:
        if self.reached is not None:
            self.reached.add(name)
