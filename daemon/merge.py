"""Several streams read as one: each event comes with the place of the stream that it came from."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from ..executor.request import Event
from ..executor.stream import Stream

AHEAD = 16  # events that may wait here; beyond that the streams themselves merge their deltas


async def read_all(streams: Sequence[Stream]) -> AsyncGenerator[tuple[int, Event], None]:
    """Events of all streams in the order of their arrival, until every stream has ended."""
    if len(streams) == 1:
        async for event in streams[0]:
            yield 0, event
        return
    arrived: asyncio.Queue[tuple[int, Event | None]] = asyncio.Queue(AHEAD)
    readers = [asyncio.create_task(_pump(place, stream, arrived)) for place, stream in enumerate(streams)]
    open_streams = len(streams)
    try:
        while open_streams:
            place, arrival = await arrived.get()
            if arrival is None:
                open_streams -= 1
            else:
                yield place, arrival
    finally:
        for reader in readers:
            reader.cancel()


async def _pump(place: int, stream: Stream, arrived: asyncio.Queue[tuple[int, Event | None]]) -> None:
    async for event in stream:
        await arrived.put((place, event))
    await arrived.put((place, None))
