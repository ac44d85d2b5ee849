"""Who is served next: waiting requests become prefills as rows come free, in the order of their arrival.

Runs on the executor thread only.
"""

from collections import deque
from collections.abc import Iterator

from .prefill import Prefill
from .prefix_tree import BLOCK
from .request import Event, Progress, Request
from .sequence import Sequence


class Scheduler:
    """Holds what is not in the batch yet. A request moves waiting -> prefilling -> (batch) and never back."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.waiting: deque[Request] = deque()
        self.prefills: deque[Prefill] = deque()
        self._told: dict[str, int] = {}
        self._elders_turn = False

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.prefills

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def resume(self, row: Sequence) -> None:
        """A row that lost its caches goes first: its client already has part of the answer."""
        self.prefills.appendleft(Prefill(row.ids, [row]))

    def admit(self, running_rows: int) -> list[Event]:
        """Open a prefill for each waiting request whose rows fit. Returns news for those that still wait."""
        reserved = running_rows + sum(len(prefill.rows) for prefill in self.prefills)
        while self.waiting and reserved + self.waiting[0].n <= self.max_rows:
            request = self.waiting.popleft()
            reserved += request.n
            self.prefills.append(open_prefill(request))
        return list(self._news())

    def next_prefill(self) -> Prefill:
        """The oldest prompt and the one with least left take turns, so that a short one need not wait for a long one.

        A prompt that begins like an older one waits for it, and finds their common beginning in the cache.
        """
        self._elders_turn = not self._elders_turn
        if self._elders_turn:
            return self.prefills[0]
        beginnings: dict[tuple[int, ...], Prefill] = {}
        for prefill in self.prefills:
            beginnings.setdefault(tuple(prefill.ids[:BLOCK]), prefill)
        return min(beginnings.values(), key=lambda prefill: prefill.remaining)

    def _news(self) -> Iterator[Event]:
        """Places in the queue, told when they change."""
        places = {request.id: place for place, request in enumerate(self.waiting, start=1)}
        for request in self.waiting:
            if self._told.get(request.id) != places[request.id]:
                yield Progress(request.id, queued=places[request.id], total=len(request.ids))
        self._told = places

    def cancel(self, request_id: str, choice: int | None) -> None:
        """Forget a request that has not reached the batch, or one choice of it."""
        if choice is None:
            self.waiting = deque(r for r in self.waiting if r.id != request_id)
        for prefill in self.prefills:
            for row in prefill.rows:
                if row.request.id == request_id and choice in (None, row.choice):
                    row.ended = True
        self.prefills = deque(p for p in self.prefills if not p.abandoned)


def open_prefill(request: Request) -> Prefill:
    """The rows of a request, before their prompt."""
    rows = [Sequence(request, choice) for choice in range(request.n)]
    for row in rows:
        row.matcher = request.grammar.matcher() if request.grammar else None
    return Prefill(list(request.ids), rows)
