"""An answer in one JSON body: pieces are gathered until every choice has ended."""

from typing import Any

from ..executor.request import Logprobs
from ..tokenizer.tokenizer import Tokenizer
from .choices import Piece
from .generation import Generation
from .logprobs import LegacyLogprobs, chat_logprobs


class _Gathered:
    """All pieces of one choice so far."""

    def __init__(self) -> None:
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.calls: dict[int, dict[str, Any]] = {}
        self.logprobs: list[Logprobs] = []
        self.finish: str | None = None
        self.stop_reason: str | None = None

    def add(self, piece: Piece) -> None:
        self.content.append(piece.content)
        self.reasoning.append(piece.reasoning)
        self.logprobs += piece.logprobs
        for delta in piece.tool_calls:
            call = self.calls.setdefault(
                delta.index, {"id": delta.id, "type": "function", "function": {"name": delta.name, "arguments": ""}}
            )
            call["function"]["arguments"] += delta.arguments
        self.finish, self.stop_reason = piece.finish, piece.stop_reason

    def message(self) -> dict[str, Any]:
        content = "".join(self.content)
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if reasoning := "".join(self.reasoning):
            message["reasoning_content"] = reasoning
        if self.calls:
            message["tool_calls"] = [self.calls[index] for index in sorted(self.calls)]
            message["content"] = content or None
        return message


async def whole_answer(generation: Generation, tokenizer: Tokenizer) -> dict[str, Any]:
    """Raises ApiError when a choice fails."""
    job = generation.job
    gathered = [_Gathered() for _ in generation.choices]
    async for piece in generation.pieces():
        gathered[piece.index].add(piece)
    shape = _chat_choice if job.chat else _completion_choice
    return {
        "id": job.id,
        "object": "chat.completion" if job.chat else "text_completion",
        "created": job.created,
        "model": job.model,
        "system_fingerprint": job.fingerprint,
        "choices": [
            shape(each, tokenizer, job.logprobs is not None)
            | {"index": index, "finish_reason": each.finish, "stop_reason": each.stop_reason}
            for index, each in enumerate(gathered)
        ],
        "usage": generation.usage(),
    }


def _chat_choice(gathered: _Gathered, tokenizer: Tokenizer, wanted: bool) -> dict[str, Any]:
    logprobs = chat_logprobs(gathered.logprobs, tokenizer) if wanted else None
    return {"message": gathered.message(), "logprobs": logprobs}


def _completion_choice(gathered: _Gathered, tokenizer: Tokenizer, wanted: bool) -> dict[str, Any]:
    logprobs = LegacyLogprobs(tokenizer).shape(gathered.logprobs) if wanted else None
    return {"text": "".join(gathered.content), "logprobs": logprobs}
