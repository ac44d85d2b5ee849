"""The way in: commands from the event loop to the executor thread, which blocks here when it is idle."""

import threading
import time
from collections import deque

from .request import Command


class Inbox:
    """A queue with one reader. `put` may be called from any thread; `take` on the executor thread only."""

    def __init__(self) -> None:
        self._commands: deque[Command] = deque()
        self._arrived = threading.Condition()
        self._oldest: float | None = None

    def put(self, command: Command) -> None:
        with self._arrived:
            if self._oldest is None:
                self._oldest = time.monotonic()
            self._commands.append(command)
            self._arrived.notify()

    def take(self, *, block: bool) -> list[Command]:
        """Everything that has arrived; with `block`, at least one command."""
        with self._arrived:
            while block and not self._commands:
                self._arrived.wait()
            taken = list(self._commands)
            self._commands.clear()
            self._oldest = None
            return taken

    @property
    def oldest(self) -> float | None:
        """When the longest-waiting command arrived (`time.monotonic`), or None: nothing waits."""
        return self._oldest
