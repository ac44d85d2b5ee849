"""The load generator, a process of its own: sends shots at their cues and notes when each piece of text arrives.

Run as a module; speaks `Load` and `Report` as JSON lines.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import orjson

from .bench_child import answer_lines
from .bench_events import Events, Seen
from .bench_plan import Cue, Load, Outcome, Report


class Mark:
    """How far one shot is, for those that wait for it. Owned by the event loop."""

    def __init__(self) -> None:
        self._events = -1  # not sent yet
        self._ended = False
        self._moved = asyncio.Event()

    def move(self, events: int, ended: bool = False) -> None:
        self._events, self._ended = events, ended
        self._moved.set()
        self._moved = asyncio.Event()

    async def reach(self, cue: Cue) -> None:
        while not self._ended and (cue.events is None or self._events < cue.events):
            await self._moved.wait()
        await asyncio.sleep(cue.plus_s)


class Range:
    """One load on its way."""

    def __init__(self, load: Load, session: aiohttp.ClientSession) -> None:
        self._load, self._session = load, session
        self._began = time.perf_counter()
        self._marks = [Mark() for _ in load.shots]
        self._probes: dict[str, list[float]] = {path: [] for path in load.probes}
        self._faults = dict.fromkeys(load.probes, 0)

    def _now(self) -> float:
        return time.perf_counter() - self._began

    async def run(self) -> Report:
        probing = [asyncio.create_task(self._probe(path)) for path in self._load.probes]
        outcomes = await asyncio.gather(*(self._shoot(place) for place in range(len(self._load.shots))))
        wall = self._now()
        for task in probing:
            task.cancel()
        await asyncio.gather(*probing, return_exceptions=True)
        probes = {path: tuple(seconds) for path, seconds in self._probes.items()}
        return Report(tuple(outcomes), probes, self._faults, wall)

    async def _shoot(self, place: int) -> Outcome:
        shot, mark = self._load.shots[place], self._marks[place]
        if shot.after is not None:
            await self._marks[shot.after.shot].reach(shot.after)
        seen = Seen(self._now())
        sending = asyncio.create_task(self._send(place, seen))
        waiting = {sending}
        if shot.leave is not None:
            waiting.add(asyncio.create_task(self._marks[shot.leave.shot].reach(shot.leave)))
        mark.move(0)
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        seen.left = not sending.done()
        for task in waiting:
            task.cancel()  # cancelling a request closes its connection
        await asyncio.gather(*waiting, return_exceptions=True)
        ended = self._now()
        mark.move(len(seen.arrivals), ended=True)
        return seen.outcome(ended)

    async def _send(self, place: int, seen: Seen) -> None:
        shot = self._load.shots[place]
        headers = {"Content-Type": "application/json", **self._load.headers}
        try:
            async with self._session.post(
                self._load.base_url + shot.path, data=orjson.dumps(shot.body), headers=headers
            ) as response:
                seen.status = response.status
                if response.content_type == "text/event-stream":
                    await self._read(response, seen, lambda: self._marks[place].move(len(seen.arrivals)))
                else:
                    seen.take_whole(await response.read(), self._now())
        except (aiohttp.ClientError, TimeoutError) as error:
            seen.error = f"{type(error).__name__}: {error}"

    async def _read(self, response: aiohttp.ClientResponse, seen: Seen, moved: Callable[[], None]) -> None:
        events = Events()
        async for part in response.content.iter_any():
            now = self._now()
            if any([seen.take(data, now) for data in events.feed(part)]):
                moved()

    async def _probe(self, path: str) -> None:
        while True:
            began = time.perf_counter()
            try:
                async with self._session.get(self._load.base_url + path, headers=self._load.headers) as response:
                    await response.read()
                    if response.status != 200:
                        self._faults[path] += 1
            except aiohttp.ClientError:
                self._faults[path] += 1
            self._probes[path].append(time.perf_counter() - began)
            await asyncio.sleep(self._load.probe_every_s)


async def fire(load: Load) -> Report:
    # Not the environment's proxies: what is measured is this machine.
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=load.timeout_s)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False) as session:
        return await Range(load, session).run()


def answer(load: Load) -> Any:
    return asyncio.run(fire(load))


if __name__ == "__main__":
    answer_lines(answer, Load)
