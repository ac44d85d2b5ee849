"""POST /admin/drain: what SIGTERM does, for those who may administer and cannot send a signal."""

import logging

import orjson
from aiohttp import web

from .admin import check_admin
from .guard import DRAIN_PATH as PATH
from .state import DAEMON

__all__ = ["PATH", "drain"]
log = logging.getLogger(__name__)


async def drain(request: web.Request) -> web.StreamResponse:
    """Not ready from now on; what runs may finish within the grace time; then the process ends with 0. May be repeated.

    The answer is on its way before the daemon begins to leave, which may take its connections with it.
    """
    daemon = request.app[DAEMON]
    check_admin(request, daemon)
    daemon.draining = True
    body = {"status": "draining", "answering": daemon.answering, "grace_s": daemon.config.shutdown_grace}
    response = web.json_response(status=202, body=orjson.dumps(body))
    await response.prepare(request)
    await response.write_eof()
    if daemon.leave is not None:
        log.warning("asked to drain: shutting down")
        daemon.leave()
    return response
