"""The two endpoints that generate: read the body, go through the door, queue the job, answer whole or as a stream."""

import asyncio
from collections.abc import Callable
from urllib.parse import quote

import orjson
from aiohttp import web

from ..executor.request import Progress
from .body import read_body
from .chunks import ChatChunks, CompletionChunks
from .door import open_chat, open_completion
from .errors import ApiError
from .generation import Generation
from .job import Job
from .log_request import RECORD
from .served import Served
from .sse import DONE, EventStream
from .state import DAEMON, DEADLINE, Daemon
from .whole import whole_answer


async def chat_completions(request: web.Request) -> web.StreamResponse:
    return await _answer(request, open_chat)


async def completions(request: web.Request) -> web.StreamResponse:
    return await _answer(request, open_completion)


async def _answer(request: web.Request, open_door: Callable[[bytes, Served], Job]) -> web.StreamResponse:
    daemon = request.app[DAEMON]
    served, engine = daemon.admit()
    daemon.answering += 1
    try:
        deadline = daemon.deadline(request.headers.get(DEADLINE))
        raw = await read_body(request, daemon.config.max_body_bytes, daemon.pool)
        record = request[RECORD]
        if daemon.config.log_prompts:
            record.body = raw.decode("utf-8", "replace")
        job = await asyncio.get_running_loop().run_in_executor(daemon.pool, open_door, raw, served)
        del raw
        record.queue(job)
        async with Generation(job, engine, served.tokenizer, deadline, record.tick) as generation:
            record.run(generation)
            reply = _stream if job.wishes.stream else _whole
            return await reply(request, daemon, served, generation)
    finally:
        daemon.answering -= 1


def _headers(job: Job) -> dict[str, str]:
    headers = {"X-Soloist-Seed": str(job.seed)}
    if job.ignored:
        headers["X-Soloist-Ignored"] = ", ".join(quote(name[:64], safe="") for name in job.ignored[:32])
    return headers


async def _whole(request: web.Request, daemon: Daemon, served: Served, generation: Generation) -> web.StreamResponse:
    answer = await whole_answer(generation, served.tokenizer)
    return web.json_response(body=orjson.dumps(answer), headers=_headers(generation.job))


async def _stream(request: web.Request, daemon: Daemon, served: Served, generation: Generation) -> web.StreamResponse:
    job = generation.job
    chunks = (ChatChunks if job.chat else CompletionChunks)(job, served.tokenizer)
    remark = lambda: _remark(generation.progress)  # noqa: E731
    events = EventStream(request, _headers(job), daemon.config.keepalive_every, remark)
    try:
        async with events:
            async for piece in generation.pieces():
                await events.send(chunks.chunk(piece))
            if job.wishes.include_usage:
                await events.send(chunks.usage(generation.usage()))
            await events.send(DONE)
    except ApiError as error:
        if not events.started:
            raise
        request[RECORD].error = error
        await events.fail(error)
    return await events.end()


def _remark(progress: Progress | None) -> str:
    """Where the request is, for a comment that people may read in a trace."""
    if progress is None:
        return ""
    if progress.queued is not None:
        return f"queued {progress.queued}"
    return f"prefill {progress.done}/{progress.total}"
