"""One choice of an answer while it grows: ids become text, stop strings end it, tokens are counted.

Runs on the event loop.
"""

from dataclasses import dataclass

from ..executor.request import Delta, Logprobs
from ..tokenizer.output import OutputText, Text, ToolDelta

FINISH_STOP, FINISH_LENGTH, FINISH_TOOLS = "stop", "length", "tool_calls"


@dataclass(slots=True)
class Piece:
    """What one delta adds to one choice. `stopped`: a stop string ended it, and the executor should be told."""

    index: int
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolDelta, ...] = ()
    logprobs: tuple[Logprobs, ...] = ()
    finish: str | None = None
    stop_reason: str | None = None
    stopped: bool = False

    def add(self, text: Text) -> None:
        self.content += text.content
        self.reasoning += text.reasoning
        self.tool_calls += text.tool_calls
        self.stop_reason = text.stop


class Choice:
    """State of one choice. `prompt` is the place of its prompt in the request, `index` its own in the answer."""

    __slots__ = ("_output", "_step", "cached", "done", "index", "prompt", "tokens")

    def __init__(self, index: int, prompt: int, output: OutputText, exact: bool) -> None:
        """exact: ids are read one by one, so that text, logprobs and usage end at the id that ends a stop string."""
        self.index = index
        self.prompt = prompt
        self.tokens = 0
        self.cached = 0
        self.done = False
        self._output = output
        self._step = 1 if exact else None

    def take(self, delta: Delta) -> Piece:
        """The visible part of a delta. Whatever comes after a stop string is dropped, from text and usage alike."""
        piece = Piece(self.index)
        used = self._read(delta.ids, piece)
        piece.logprobs = delta.logprobs[:used]
        self.tokens += used
        self.cached = max(self.cached, delta.cached_tokens)
        if piece.stop_reason is None and delta.finish is not None:
            self.tokens += delta.ended_by is not None
            piece.add(self._output.finish())
            piece.finish = delta.finish
        if piece.stop_reason is not None:
            piece.finish = FINISH_STOP
            piece.stopped = delta.finish is None
        if piece.finish is not None:
            self.done = True
            if piece.finish == FINISH_STOP and self._output.called_tools:
                piece.finish = FINISH_TOOLS
        return piece

    def _read(self, ids: tuple[int, ...], piece: Piece) -> int:
        """Push the ids; returns how many of them belong to the answer."""
        if self._step is None:
            if ids:
                piece.add(self._output.push(ids))
            return len(ids)
        for position, token in enumerate(ids, 1):
            piece.add(self._output.push((token,)))
            if piece.stop_reason is not None:
                return position
        return len(ids)
