"""Health: liveness is the event loop's, readiness the executor's, and deep health draws a token to be sure."""

import asyncio
import time
from dataclasses import asdict
from typing import Any

import orjson
from aiohttp import web

from .. import __version__
from ..executor.engine import Engine
from ..executor.errors import ExecutorError
from .errors import RETRY_SOON, Unavailable
from .served import Served
from .state import DAEMON, LOADING_RETRY_S, Daemon

DEEP_WITHIN_S = 10.0


def read_health(daemon: Daemon) -> tuple[bool, dict[str, Any]]:
    """Whether the daemon is ready, and the document that says why or why not."""
    health = daemon.health()
    state, reason = health.state, health.reason
    if daemon.draining and state in ("ready", "loading"):
        state, reason = "draining", "shutting down"
    elif daemon.served is None and state in ("ready", "loading"):
        state, reason = "loading", daemon.phase
    ready = state == "ready"
    document = {
        "status": "ok" if ready else "unavailable",
        **asdict(health),
        "state": state,
        "reason": reason,
        "model": daemon.served.name if daemon.served else None,
        "answering": daemon.answering,
        "uptime_s": round(time.monotonic() - daemon.started, 3),
        "version": __version__,
    }
    return ready, document


def check_ready(daemon: Daemon) -> Served:
    """Raises Unavailable with the reason."""
    ready, document = read_health(daemon)
    if not ready or daemon.served is None:
        loading = document["state"] == "loading"
        raise Unavailable(
            f"Not ready: {document['reason'] or document['state']}.",
            code=document["state"],
            retry_after_s=LOADING_RETRY_S if loading else RETRY_SOON,
        )
    return daemon.served


def _answer(ready: bool, document: dict[str, Any]) -> web.Response:
    headers = {"Cache-Control": "no-store"} | ({} if ready else {"Retry-After": str(RETRY_SOON)})
    return web.json_response(status=200 if ready else 503, body=orjson.dumps(document), headers=headers)


async def live(request: web.Request) -> web.Response:
    return _answer(True, {"status": "ok", "version": __version__})


async def ready(request: web.Request) -> web.Response:
    return _answer(*read_health(request.app[DAEMON]))


class DeepProbe:
    """GET /health/deep. Probes that come while one is drawing share its result, so probing cannot become a load."""

    def __init__(self) -> None:
        self._running: asyncio.Task[str | None] | None = None

    async def handle(self, request: web.Request) -> web.Response:
        daemon = request.app[DAEMON]
        is_ready, document = read_health(daemon)
        if not is_ready:
            return _answer(False, document)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(_draw(daemon.admit()[1]))
        fault = await asyncio.shield(self._running)
        _, document = read_health(daemon)
        if fault is not None:
            document |= {"status": "unavailable", "reason": fault}
        return _answer(fault is None, document)


async def _draw(engine: Engine) -> str | None:
    """One sampled token on the real thread; what went wrong, or None."""
    try:
        await engine.canary(DEEP_WITHIN_S)
    except TimeoutError:
        return f"no token was drawn within {DEEP_WITHIN_S:g} s"
    except ExecutorError as error:
        return f"no token could be drawn: {error}"
    return None
