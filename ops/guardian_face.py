"""What others can ask a guardian: its metrics, its health, what it thinks of each instance, the council's agent checks.

An agent check is HAProxy's way to hear what its own checks cannot see: it sends a name, and is told up or down.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from .guardian_metrics import GuardianMetrics

Opinions = Callable[[], dict[str, dict[str, object]]]
ASK_WITHIN_S = 5.0


@asynccontextmanager
async def metrics_server(address: str | None, metrics: GuardianMetrics, opinions: Opinions) -> AsyncIterator[None]:
    """GET /metrics, /health, /instances."""
    if address is None:
        yield
        return

    async def show_metrics(request: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def show_health(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def show_instances(request: web.Request) -> web.Response:
        return web.json_response(opinions())

    app = web.Application()
    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/health", show_health)
    app.router.add_get("/instances", show_instances)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    host, _, port = address.rpartition(":")
    try:
        await web.TCPSite(runner, host.strip("[]"), int(port)).start()
        yield
    finally:
        await runner.cleanup()


@asynccontextmanager
async def agent_server(address: str | None, opinions: Opinions) -> AsyncIterator[None]:
    """One line in, the instance's name; one line out. A name that is not watched is up: nothing is known against it."""
    if address is None:
        yield
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ASK_WITHIN_S):
                name = (await reader.readline()).decode(errors="replace").strip()
                red = opinions().get(name, {}).get("red", False)
                writer.write(b"down\n" if red else b"up\n")
                await writer.drain()
        except (TimeoutError, ConnectionError, ValueError):
            pass
        finally:
            writer.close()

    host, _, port = address.rpartition(":")
    async with await asyncio.start_server(answer, host.strip("[]"), int(port)):
        yield
