"""The running side of a job: its streams at the executor, its choices, and the promise that leaving cancels them.

Runs on the event loop.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from ..executor.engine import Engine
from ..executor.errors import Refused
from ..executor.request import Delta, Failure, Progress
from ..executor.stream import Stream
from ..tokenizer.tokenizer import Tokenizer
from .choices import Choice, Piece
from .errors import from_failure, from_refused
from .job import Job
from .merge import read_all

OnTokens = Callable[[int, int], None]


def unwatched(choice: int, tokens: int) -> None:
    """Nobody counts."""


class Generation:
    """`async with Generation(...) as generation`, then `async for piece in generation.pieces()`."""

    def __init__(
        self,
        job: Job,
        engine: Engine,
        tokenizer: Tokenizer,
        deadline: float | None,
        on_tokens: OnTokens = unwatched,
    ) -> None:
        """Queues the job. Raises ApiError when the executor refuses any part of it.

        on_tokens: told of each choice by how many tokens it has just grown.
        """
        self.job = job
        self._on_tokens = on_tokens
        self.progress: Progress | None = None
        self.choices = [_choice(job, tokenizer, index) for index in range(job.size)]
        self._streams: list[Stream] = []
        try:
            for request in job.requests(deadline):
                self._streams.append(engine.submit(request))
        except Refused as refused:
            self.cancel()
            raise from_refused(refused) from None

    async def __aenter__(self) -> "Generation":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Free every row that still runs for this job. Harmless when all has ended."""
        for stream in self._streams:
            if not stream.done:
                stream.cancel()

    async def pieces(self) -> AsyncIterator[Piece]:
        """What the choices grow by, until all have ended. Raises ApiError when one of them fails."""
        async with aclosing(read_all(self._streams)) as events:
            async for place, event in events:
                match event:
                    case Delta():
                        choice = self.choices[place * self.job.wishes.n + event.choice]
                        if choice.done:
                            continue
                        had = choice.tokens
                        piece = choice.take(event)
                        self._on_tokens(choice.index, choice.tokens - had)
                        if piece.stopped:
                            self._streams[place].cancel(event.choice)
                        yield piece
                    case Progress():
                        self.progress = event
                    case Failure():
                        raise from_failure(event)

    def usage(self) -> dict[str, object]:
        """Tokens of the whole request; each prompt counts once, however many choices were made of it."""
        prompt = sum(len(ids) for ids in self.job.prompts)
        completion = sum(choice.tokens for choice in self.choices)
        cached = sum(self.choices[first].cached for first in range(0, len(self.choices), self.job.wishes.n))
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"seed": self.job.seed},
        }


def _choice(job: Job, tokenizer: Tokenizer, index: int) -> Choice:
    place = index // job.wishes.n
    ids = job.prompts[place] if job.chat else ()
    output = tokenizer.output(job.wishes.stops, chat=job.chat, tools=job.tools, prompt_ids=ids)
    return Choice(index, place, output, exact=bool(job.wishes.stops))
