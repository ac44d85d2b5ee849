"""One choice's text as it may be shown: ids in, content, reasoning and tool calls out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .calls import Call
from .detokenizer import Detokenizer
from .stops import StopFilter


@dataclass(frozen=True, slots=True)
class ToolDelta:
    """A piece of one tool call. The first of an index carries id and name, later ones only arguments."""

    index: int
    id: str | None
    name: str | None
    arguments: str


@dataclass(frozen=True, slots=True)
class Text:
    """What may be shown now. stop: the stop string that ended the text; nothing follows it."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolDelta, ...] = ()
    stop: str | None = None


class Parts(Protocol):
    """An answer taken apart as it is written; content, reasoning and calls collect what may be shown."""

    content: str
    reasoning: str
    calls: list[Call]

    def push(self, text: str) -> None: ...
    def finish(self) -> None: ...


class PlainText:
    """A completion: all of it is content."""

    __slots__ = ("calls", "content", "reasoning")

    def __init__(self) -> None:
        self.content, self.reasoning = "", ""
        self.calls: list[Call] = []

    def push(self, text: str) -> None:
        self.content += text

    def finish(self) -> None:
        """Nothing is ever held back."""


class OutputText:
    """Detokenizer, stop strings and parts of one choice, in this order.

    Stop strings are looked for in all that the model writes, markup, reasoning and calls included; what stands before
    one is then taken apart as an answer that ended there.
    """

    __slots__ = ("_detokenizer", "_ended", "_index", "_parts", "_stops", "called_tools")

    def __init__(self, detokenizer: Detokenizer, stops: Sequence[str], parts: Parts | None = None) -> None:
        self._detokenizer = detokenizer
        self._stops = StopFilter(stops)
        self._parts: Parts = parts or PlainText()
        self._ended = False
        self._index = 0
        self.called_tools = False

    def push(self, ids: Sequence[int]) -> Text:
        """What these ids complete; empty after a stop string."""
        if self._ended:
            return Text()
        self._parts.push(self._stops.push(self._detokenizer.push(ids)))
        if self._stops.matched is not None:
            self._end()
        return self._taken()

    def finish(self) -> Text:
        """What was held back for a character, a stop string or a mark that did not complete."""
        if self._ended:
            return Text()
        self._parts.push(self._stops.push(self._detokenizer.finish()))
        self._parts.push(self._stops.finish())
        self._end()
        return self._taken()

    def _end(self) -> None:
        self._ended = True
        self._parts.finish()

    def _taken(self) -> Text:
        parts = self._parts
        content, reasoning, calls = parts.content, parts.reasoning, parts.calls
        parts.content, parts.reasoning, parts.calls = "", "", []
        return Text(content, reasoning, self._deltas(calls), self._stops.matched)

    def _deltas(self, calls: list[Call]) -> tuple[ToolDelta, ...]:
        """Each call as OpenAI streams it: its id and name, then its arguments."""
        deltas: list[ToolDelta] = []
        for call in calls:
            deltas.append(ToolDelta(self._index, call.id, call.name, ""))
            deltas.append(ToolDelta(self._index, None, None, call.arguments))
            self._index += 1
            self.called_tools = True
        return tuple(deltas)
