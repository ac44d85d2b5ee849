"""One stream of server-sent events: the status line is held back until there is something true to say.

Headers go out with the first token, or with a keep-alive comment when that takes longer than a second. An error
before the headers is a plain JSON answer; after them it is a data event that holds the error object, and the stream
ends without [DONE]. Comments are lines that begin with a colon (WHATWG HTML, section 9.2.6); clients skip them.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from aiohttp import web

from .errors import ApiError

FIRST_COMMENT_AFTER = 1.0
DONE = b"data: [DONE]\n\n"
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",  # nginx would otherwise hold events back
}


class EventStream:
    """`async with EventStream(...) as stream`: comments are sent for as long as nothing else is."""

    def __init__(
        self, request: web.Request, headers: Mapping[str, str], every: float, remark: Callable[[], str]
    ) -> None:
        """remark: what a comment says beyond "keep-alive"; must be one line."""
        self._request = request
        self._response = web.StreamResponse(headers={**HEADERS, **headers})
        self._every = every
        self._remark = remark
        self._quiet = True

    @property
    def started(self) -> bool:
        return self._response.prepared

    async def __aenter__(self) -> "EventStream":
        self._beat = asyncio.create_task(self._keep_alive())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._beat.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await self._beat

    async def _keep_alive(self) -> None:
        await asyncio.sleep(min(FIRST_COMMENT_AFTER, self._every))
        while True:
            if self._quiet:
                await self._write(f": keep-alive {self._remark()}".rstrip().encode() + b"\n\n")
            self._quiet = True
            await asyncio.sleep(self._every)

    async def send(self, events: bytes) -> None:
        """Raises ConnectionError when the client is gone. Waits while the client reads slowly."""
        self._quiet = False
        await self._write(events)

    async def _write(self, data: bytes) -> None:
        if not self._response.prepared:
            await self._response.prepare(self._request)
        if data:  # nothing to show yet, as when the first token is only half a character
            await self._response.write(data)

    async def fail(self, error: ApiError) -> None:
        await self.send(b"data: " + error.body() + b"\n\n")

    async def end(self) -> web.StreamResponse:
        with suppress(ConnectionError):  # a client may hang up as soon as it has read the last event
            await self._response.write_eof()
        return self._response
