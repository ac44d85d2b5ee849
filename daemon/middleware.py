"""Around every handler: request ids, the guards, OPTIONS, and the one place where errors become answers."""

import logging
import re
import uuid
from collections.abc import Awaitable, Callable

from aiohttp import web

from .. import __version__
from . import cors, guard
from .errors import ApiError, Internal, NotFound, WrongMethod
from .log_request import RECORD, UNKNOWN, Record
from .state import DAEMON, Daemon

log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
REQUEST_ID = web.RequestKey("request_id", str)
SERVER = f"soloist/{__version__}"
_SANE_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)


def error_response(error: ApiError) -> web.Response:
    return web.Response(
        status=error.status, body=error.body(), headers={**error.headers, "Content-Type": "application/json"}
    )


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Outermost: whatever goes wrong further in is answered in OpenAI's shape, and each request leaves its line."""
    daemon = request.app[DAEMON]
    asked = request.headers.get("X-Request-Id", "")
    request[REQUEST_ID] = asked if _SANE_ID.fullmatch(asked) else new_request_id()
    record = request[RECORD] = Record(request[REQUEST_ID], request.method[:20], _endpoint(request), daemon.metrics)
    status = None
    try:
        response = await _answer(request, handler)
        status = response.status
        return response
    finally:
        record.cut = daemon.draining
        record.close(status)


def new_request_id() -> str:
    return "req_" + uuid.uuid4().hex


def _endpoint(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return UNKNOWN if resource is None else resource.canonical.rstrip("/")


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        return _refuse(request, error)
    except web.HTTPException as error:
        return _refuse(request, _from_aiohttp(error))
    except ConnectionError:
        raise
    except Exception:
        fields = {"id": request[REQUEST_ID], "endpoint": request[RECORD].endpoint}
        log.exception("a handler failed", extra={"fields": fields, "private": True})
        if request.task.cancelling():
            raise
        return _refuse(request, Internal())


def _refuse(request: web.Request, error: ApiError) -> web.Response:
    request[RECORD].error = error
    return error_response(error)


def _from_aiohttp(error: web.HTTPException) -> ApiError:
    """Only the router raises these: no such path, or not with this method."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted({*error.allowed_methods, "OPTIONS"}))
        return WrongMethod(f"This path does not take {error.method[:20]}; it takes {allowed}.", allowed)
    if isinstance(error, web.HTTPNotFound):
        return NotFound("There is nothing at this path.")
    log.error("unexpected %s from the router", type(error).__name__)
    return Internal()


@web.middleware
async def guard_callers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Host, then OPTIONS, which browsers send without a key, then Origin and key."""
    daemon = request.app[DAEMON]
    guard.check_host(request, daemon.config)
    if request.method == "OPTIONS":
        return cors.preflight(request, _allowed(request))
    guard.check_origin(request, daemon.config)
    if not (daemon.admin_keys and guard.is_admin(request)):  # these paths ask for a key of their own
        request[RECORD].key = guard.check_key(request, daemon.keys)
    return await handler(request)


def _allowed(request: web.Request) -> str:
    """What the path takes; OPTIONS itself matches no route, so the router has gathered the others."""
    fault = request.match_info.http_exception
    methods = fault.allowed_methods if isinstance(fault, web.HTTPMethodNotAllowed) else set()
    return ", ".join(sorted({*methods, "OPTIONS"}))


def on_prepare(daemon: Daemon) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Headers of every response, added at the last moment at which a stream can still take them."""

    async def add(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = SERVER
        response.headers["X-Request-Id"] = request.get(REQUEST_ID, "")
        cors.allow_origin(request.headers.get("Origin"), daemon.config, response.headers)
        if daemon.draining:
            response.headers["Connection"] = "close"
            response.force_close()

    return add
