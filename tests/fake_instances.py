"""Instances that misbehave on demand: small HTTP servers in threads, for faults that a real daemon does not have."""

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

SPOKEN = "spoken"
CARD = {"object": "list", "data": [{"id": "demo", "object": "model"}]}


class FakeInstance:
    """mode: well | silent | loading | draining | cut | bad | hollow; `refuse()` and `accept()` close and open the port.

    served: completions that reached it. left: clients that hung up before their answer was whole.
    """

    def __init__(self, name: str) -> None:
        self.name, self.mode = name, "well"
        self.served = self.left = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.port = 0
        self.accept()

    def _call(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)  # type: ignore[arg-type]

    def accept(self) -> None:
        self._call(self._start())

    def refuse(self) -> None:
        self._call(self._runner.cleanup())

    def stop(self) -> None:
        self.refuse()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_get("/health/{kind}", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _health(self, request: web.Request) -> web.Response:
        if self.mode == "silent":
            await asyncio.sleep(3600)
        state = self.mode if self.mode in ("loading", "draining") else "ready"
        document = {"state": state, "last_step_age_s": 0.1, "queue_depth": 0, "running": 0, "steps": 1}
        return web.json_response(document, status=200 if state == "ready" else 503)

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response(CARD)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.served += 1
        match self.mode:
            case "silent":
                return await self._wait_for_ever()
            case "loading" | "draining":
                return web.json_response({"error": {"message": self.mode}}, status=503)
            case "bad":
                return web.json_response({"error": {"message": "bad"}}, status=400)
            case "hollow":
                return web.Response()
        return await (self._stream(request) if body.get("stream") or self.mode == "cut" else self._whole())

    async def _wait_for_ever(self) -> web.Response:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.left += 1
            raise
        return web.Response()

    async def _whole(self) -> web.Response:
        usage = {"completion_tokens": 1}
        return web.json_response({"choices": [{"text": SPOKEN, "message": {"content": SPOKEN}}], "usage": usage})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for number in range(1000):
                await response.write(b"data: " + json.dumps({"number": number}).encode() + b"\n\n")
                if number == 2 and self.mode == "cut":
                    return self._reset(request, response)
                if number == 9 and self.mode == "well":
                    break
                await asyncio.sleep(0.01)
        except (asyncio.CancelledError, ConnectionError):
            self.left += 1
            raise
        await response.write(b"data: [DONE]\n\n")
        return response

    def _reset(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
        return response


@contextmanager
def fakes(*names: str) -> Iterator[tuple[FakeInstance, ...]]:
    instances = tuple(FakeInstance(name) for name in names)
    try:
        yield instances
    finally:
        for instance in instances:
            instance.stop()
