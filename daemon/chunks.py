"""A streamed answer on the wire: pieces become chunks. All that is the same in every chunk is encoded once.

Tokens come by the thousand a second, so the common chunk costs one `orjson.dumps` of its text.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from ..tokenizer.output import ToolDelta
from ..tokenizer.tokenizer import Tokenizer
from .choices import Piece
from .job import Job
from .logprobs import LegacyLogprobs, chat_logprobs


class _Chunks:
    """What the two kinds of stream share: the frame around `choices`, and the usage chunk."""

    kind = ""

    def __init__(self, job: Job, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._head = {
            "id": job.id,
            "object": self.kind,
            "created": job.created,
            "model": job.model,
            "system_fingerprint": job.fingerprint,
        }
        self._before = b"data: " + orjson.dumps(self._head)[:-1] + b',"choices":[{"index":'
        self._after = b'}],"usage":null}\n\n' if job.wishes.include_usage else b"}]}\n\n"

    def _frame(self, index: int, members: bytes) -> bytes:
        return b"%b%d,%b%b" % (self._before, index, members, self._after)

    def _chunk(self, index: int, members: Mapping[str, Any]) -> bytes:
        return self._frame(index, orjson.dumps(members)[1:-1])

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        return b"data: " + orjson.dumps({**self._head, "choices": [], "usage": usage}) + b"\n\n"


class ChatChunks(_Chunks):
    """Deltas of messages. The first of each choice carries its role alone, the last its finish_reason alone."""

    kind = "chat.completion.chunk"

    def __init__(self, job: Job, tokenizer: Tokenizer) -> None:
        super().__init__(job, tokenizer)
        self._begun: set[int] = set()

    def chunk(self, piece: Piece) -> bytes:
        """The events of one piece; empty while its text is held back."""
        events = b""
        if piece.index not in self._begun:
            self._begun.add(piece.index)
            events += self._delta(piece.index, {"role": "assistant", "content": ""})
        if piece.content and not (piece.logprobs or piece.reasoning or piece.tool_calls):
            text = orjson.dumps(piece.content)
            events += self._frame(piece.index, b'"delta":{"content":%b},"logprobs":null,"finish_reason":null' % text)
        elif piece.content or piece.logprobs or piece.reasoning or piece.tool_calls:
            events += self._full(piece)
        if piece.finish is not None:
            events += self._delta(piece.index, {}, finish=piece.finish, stop_reason=piece.stop_reason)
        return events

    def _full(self, piece: Piece) -> bytes:
        delta: dict[str, Any] = {}
        if piece.reasoning:
            delta["reasoning_content"] = piece.reasoning
        if piece.content or not (piece.reasoning or piece.tool_calls):
            delta["content"] = piece.content
        if piece.tool_calls:
            delta["tool_calls"] = [_tool_delta(call) for call in piece.tool_calls]
        logprobs = chat_logprobs(piece.logprobs, self._tokenizer) if piece.logprobs else None
        return self._delta(piece.index, delta, logprobs=logprobs)

    def _delta(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: Any = None,
        finish: str | None = None,
        stop_reason: Any = None,
    ) -> bytes:
        members = {"delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return self._chunk(index, members if stop_reason is None else members | {"stop_reason": stop_reason})


def _tool_delta(call: ToolDelta) -> dict[str, Any]:
    """id, type and name come with the first delta of a call and never again."""
    if call.id is None:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"index": call.index, "id": call.id, "type": "function", "function": function}


class CompletionChunks(_Chunks):
    """Pieces of text, one choice a chunk."""

    kind = "text_completion"

    def __init__(self, job: Job, tokenizer: Tokenizer) -> None:
        super().__init__(job, tokenizer)
        self._legacy = [LegacyLogprobs(tokenizer) for _ in range(job.size)]

    def chunk(self, piece: Piece) -> bytes:
        """The events of one piece; empty while its text is held back."""
        if piece.finish is None and not piece.logprobs:
            if not piece.content:
                return b""
            text = orjson.dumps(piece.content)
            return self._frame(piece.index, b'"text":%b,"logprobs":null,"finish_reason":null' % text)
        logprobs = self._legacy[piece.index].shape(piece.logprobs) if piece.logprobs else None
        members = {"text": piece.content, "logprobs": logprobs, "finish_reason": piece.finish}
        return self._chunk(
            piece.index, members if piece.stop_reason is None else members | {"stop_reason": piece.stop_reason}
        )
