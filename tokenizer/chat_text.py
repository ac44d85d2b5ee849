"""An answer taken apart as it is written: reasoning, content, tool calls.

Reasoning is a block at the beginning; tool syntax inside it is reasoning. A block of calls is shown when it is
complete, because a malformed one must come back as the text it is. Newlines next to the marks of reasoning and white
space around calls belong to the markup and are not shown.
"""

from collections.abc import Callable
from enum import Enum, auto

from . import json_calls
from .calls import Call, CallReader, is_open
from .reasoning import Marks


class _State(Enum):
    BEGINNING = auto()
    REASONING = auto()
    REASONED = auto()
    CONTENT = auto()
    BLOCK = auto()
    FENCE = auto()


class ChatText:
    """opened: the prompt ends inside a reasoning block. reader: None where no tools are offered.

    content, reasoning and calls collect what may be shown; the owner takes them.
    """

    __slots__ = ("_called", "_held", "_marks", "_native", "_reader", "_seen", "_space", "_state", "_steps",
                 "calls", "content", "reasoning")  # fmt: skip

    def __init__(self, marks: Marks, *, opened: bool, reader: CallReader | None) -> None:
        self._marks = marks
        self._reader = reader
        self._state = _State.REASONING if opened else _State.BEGINNING
        self._held = ""
        self._space: str | None = ""  # white space that may turn out to be markup; None after visible content
        self._seen = 0
        self._native = self._called = False
        self.content, self.reasoning = "", ""
        self.calls: list[Call] = []
        self._steps: dict[_State, Callable[[], bool]] = {
            _State.BEGINNING: self._begin,
            _State.REASONING: self._reason,
            _State.REASONED: self._after_reasoning,
            _State.CONTENT: self._show,
            _State.BLOCK: self._block,
            _State.FENCE: self._fence,
        }

    def push(self, text: str) -> None:
        self._held += text
        while self._held and self._steps[self._state]():
            pass

    def finish(self) -> None:
        """Nothing follows: what was held back is shown as what it is."""
        while self._state is _State.BLOCK:
            self._close_block()
            self.push("")
        held, self._held = self._held, ""
        if self._state is _State.REASONING:
            self.reasoning += held
        else:
            self._write(held)
            if self._space and not self._called:
                self.content += self._space

    def _begin(self) -> bool:
        text = self._held.lstrip()
        if text.startswith(self._marks.start):
            self._held = text[len(self._marks.start) :]
            self._state, self._seen = _State.REASONING, 0
        elif self._marks.start.startswith(text):
            return False
        else:
            self._state = _State.CONTENT
        return True

    def _reason(self) -> bool:
        if not self._seen:  # nothing of the reasoning has been shown yet
            self._held = self._held.lstrip("\n")
        at = self._held.find(self._marks.end)
        shown = self._held[:at] if at >= 0 else self._held[: beginning_of(self._marks.end, self._held)]
        shown = shown.rstrip("\n")
        self._seen += len(shown)
        self.reasoning += shown
        if at < 0:
            self._held = self._held[len(shown) :]
            return False
        self._held = self._held[at + len(self._marks.end) :]
        self._state = _State.REASONED
        return True

    def _after_reasoning(self) -> bool:
        self._held = self._held.lstrip("\n")
        if self._held:
            self._state = _State.CONTENT
        return bool(self._held)

    def _show(self) -> bool:
        """Content up to the next thing that is or may become a call."""
        if self._reader is None:
            self._take(len(self._held))
            return False
        start = self._reader.format.start
        native = self._held.find(start)
        found = None if self._native else json_calls.find(self._held)
        if native >= 0 and (found is None or native <= found.start):
            self._take(native)
            self._held = self._held[len(start) :]
            self._state, self._seen = _State.BLOCK, 0
            return True
        if found is not None and found.end is not None:
            return self._plain_call(found, found.end)
        pending = [beginning_of(start, self._held), *([found.start] if found else [])]
        self._take(min(pending))
        return False

    def _plain_call(self, found: json_calls.Found, end: int) -> bool:
        assert self._reader is not None
        calls = self._reader.accept(found.value)
        if not calls or any(call.name not in self._reader.names for call in calls):
            self._take(end)
            return True
        self._take(found.start)
        self._held = self._held[end - found.start :]
        self._call(calls)
        self._state = _State.FENCE if found.fenced else _State.CONTENT
        return True

    def _fence(self) -> bool:
        at = json_calls.after_fence(self._held)
        if at is None:
            return False
        self._held, self._state = self._held[at:], _State.CONTENT
        return True

    def _block(self) -> bool:
        """A block of calls, at the first end marker that does not stand inside one of its strings."""
        assert self._reader is not None
        end = self._reader.format.end
        while end:
            at = self._held.find(end, self._seen)
            if at < 0:
                self._seen = max(self._seen, len(self._held) - len(end) + 1)
                return False
            calls = self._reader.read(self._held[:at])
            if calls is None and is_open(self._held[:at]):
                self._seen = at + len(end)
                continue
            self._end_block(at, calls)
            return True
        return False

    def _close_block(self) -> None:
        """The answer ended inside a block: a call that is complete but for its end marker still counts."""
        assert self._reader is not None
        end = self._reader.format.end
        calls = self._reader.read(self._held, closed=not end)
        at = self._held.find(end) if end else -1
        self._end_block(len(self._held) if calls or at < 0 else at, calls)

    def _end_block(self, at: int, calls: list[Call] | None) -> None:
        assert self._reader is not None
        format = self._reader.format
        body, self._held = self._held[:at], self._held[at:]
        closing = self._held[: len(format.end)]
        self._held = self._held[len(closing) :]
        self._state = _State.CONTENT
        if calls:
            self._native = True
            self._call(calls)
        else:
            self._write(f"{format.start}{body}{closing}")

    def _call(self, calls: list[Call]) -> None:
        self.calls += calls
        self._called, self._space = True, ""

    def _take(self, count: int) -> None:
        shown, self._held = self._held[:count], self._held[count:]
        self._write(shown)

    def _write(self, text: str) -> None:
        if self._space is None:
            self.content += text
        elif text.strip():
            self.content += self._space + text
            self._space = None
        else:
            self._space += text


def beginning_of(marker: str, text: str) -> int:
    """Where the end of the text begins that may become the marker; the text's length if nowhere."""
    for at in range(max(0, len(text) - len(marker) + 1), len(text)):
        if marker.startswith(text[at:]):
            return at
    return len(text)
