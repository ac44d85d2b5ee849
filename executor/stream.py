"""The way out for one request: a mailbox on the event loop that merges deltas while its reader is slow.

Runs on the event loop only.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from .request import Delta, Event, Failure, Progress, Request

MERGED_IDS = 64  # a delta grows no further than this, so that a slow reader still gets pieces


class Stream:
    """`async for event in stream` yields events until every choice has ended or failed."""

    def __init__(self, request: Request, cancel: Callable[[int | None], None]) -> None:
        self.request = request
        self._cancel = cancel
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._open = set(range(request.n))

    @property
    def done(self) -> bool:
        """Whether the last event of every choice has been delivered to the mailbox."""
        return not self._open

    def deliver(self, event: Event) -> None:
        """Called by the engine. Events for a choice that has ended are dropped."""
        match event:
            case Failure(choice=None):
                self._open.clear()
            case Failure(choice=choice):
                self._open.discard(choice)
            case Delta(choice=choice) if choice not in self._open:
                return
            case Delta(choice=choice, finish=finish) if finish is not None:
                self._open.discard(choice)
            case _:
                pass
        if not self._merge(event):
            self._events.append(event)
        self._arrived.set()

    def _merge(self, event: Event) -> bool:
        """Fold the event into the last waiting one where that loses nothing."""
        if not self._events:
            return False
        match self._events[-1], event:
            case Progress(), Progress():
                self._events[-1] = event
                return True
            case Delta(finish=None) as last, Delta() as new if last.choice == new.choice:
                if len(last.ids) >= MERGED_IDS:
                    return False
                self._events[-1] = replace(new, ids=last.ids + new.ids, logprobs=last.logprobs + new.logprobs)
                return True
        return False

    def cancel(self, choice: int | None = None) -> None:
        """Stop generating for one choice, or for all. Its row is freed within a step or two."""
        self._open.difference_update(self._open if choice is None else {choice})
        self._arrived.set()
        self._cancel(choice)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if not self._open:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._events.popleft()
