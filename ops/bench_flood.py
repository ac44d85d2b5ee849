"""Reads many streams as fast as they come and only counts their events: the client must not be what is measured.

A process of its own. Run as a module; speaks `Flood` and `Flooded` as JSON lines.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import orjson

from .bench_child import answer_lines
from .bench_plan import CHAT

EVENT, DONE = b'data: {"id"', b"data: [DONE]"
LAST_CHUNK = b"\r\n0\r\n\r\n"  # of a chunked body (RFC 9112, section 7.1)
OVERLAP = len(DONE)


@dataclass(frozen=True, slots=True)
class Flood:
    """streams: concurrent requests. body: of each of them."""

    port: int
    streams: int
    body: dict[str, Any]
    within_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Flooded:
    """events: data events but for [DONE]. seconds: from the first of them to the last. errors: streams that broke."""

    events: int
    seconds: float
    bytes: int
    errors: int


class Reader(asyncio.Protocol):
    """One stream."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._tail = b""
        self.events, self.bytes = 0, 0
        self.first_s, self.last_s = 0.0, 0.0
        self.complete = False
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self.bytes += len(data)
        seen = self._tail + data
        found = seen.count(EVENT) - self._tail.count(EVENT)
        if found:
            self.events += found
            self.first_s, self.last_s = self.first_s or now, now
        self._tail = seen[-OVERLAP:]
        self.complete = self.complete or DONE in seen
        if self.complete and seen.endswith(LAST_CHUNK):
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def flood(asked: Flood) -> Flooded:
    body = orjson.dumps(asked.body)
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:{asked.port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    loop, readers = asyncio.get_running_loop(), []
    for _ in range(asked.streams):
        _, reader = await loop.create_connection(lambda: Reader(head.encode() + body), "127.0.0.1", asked.port)
        readers.append(reader)
    async with asyncio.timeout(asked.within_s):
        await asyncio.gather(*(reader.ended for reader in readers))
    begin = min(reader.first_s for reader in readers)
    end = max(reader.last_s for reader in readers)
    return Flooded(
        sum(reader.events for reader in readers),
        end - begin,
        sum(reader.bytes for reader in readers),
        sum(not reader.complete for reader in readers),
    )


if __name__ == "__main__":
    answer_lines(lambda asked: asyncio.run(flood(asked)), Flood)
