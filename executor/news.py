"""What a round has to tell: events for the event loop, and the last thing that went wrong.

Runs on the executor thread only.
"""

from .pulse import Pulse
from .request import AdapterReply, Event, Failure, FailureKind
from .sequence import Sequence

FAILED = "the executor failed on this request; nothing else was affected"


class News:
    """`outbox` fills during a round; the worker hands it out after each."""

    def __init__(self, pulse: Pulse) -> None:
        self.outbox: list[Event | AdapterReply] = []
        self._pulse = pulse

    def take(self) -> list[Event | AdapterReply]:
        """Everything that has not been handed out yet."""
        taken, self.outbox = self.outbox, []
        return taken

    def fail(self, row: Sequence, kind: FailureKind = "executor_failed", message: str = FAILED) -> None:
        """End a row; its client reads the message."""
        if not row.ended:
            row.ended = True
            self.outbox.append(Failure(row.request.id, kind, message, row.choice))

    def note(self, error: Exception) -> None:
        """As text: the exception itself holds frames that hold arrays, which must not leave this thread."""
        self._pulse.last_error = one_line(error)


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
