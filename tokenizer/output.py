"""One choice's text as it may be shown: ids in, content, reasoning and tool calls out."""

from collections.abc import Sequence
from dataclasses import dataclass

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


class OutputText:
    """Detokenizer and stop strings of one choice, in the order in which the text is written."""

    __slots__ = ("_detokenizer", "_stops", "called_tools")

    def __init__(self, detokenizer: Detokenizer, stops: Sequence[str]) -> None:
        self._detokenizer = detokenizer
        self._stops = StopFilter(stops)
        self.called_tools = False

    def push(self, ids: Sequence[int]) -> Text:
        """What these ids complete; empty after a stop string."""
        if self._stops.matched is not None:
            return Text()
        return Text(content=self._stops.push(self._detokenizer.push(ids)), stop=self._stops.matched)

    def finish(self) -> Text:
        """What was held back for a character or a stop string that did not complete."""
        if self._stops.matched is not None:
            return Text()
        shown = self._stops.push(self._detokenizer.finish())
        if self._stops.matched is None:
            shown += self._stops.finish()
        return Text(content=shown, stop=self._stops.matched)
