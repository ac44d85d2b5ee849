"""/v1/adapters: what is served beside the model, changed while it runs, by those who may.

With --admin-key-file its keys open these paths. Without one, only this machine may come, and no web page: a browser's
request carries its Origin, and --cors-origin, which is about reading answers, does not count here.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import orjson
from aiohttp import web

from .body import read_body
from .errors import BadRequest, Forbidden, Unauthorized
from .guard import ADMIN_PATH as PATH
from .health import check_ready
from .kinds import NAME
from .log_request import RECORD
from .served import Served
from .start import CannotServe
from .state import DAEMON, Daemon

__all__ = ["PATH", "list_adapters", "load_adapter", "show_adapter", "unload_adapter"]
PROXY_HEADERS = ("Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via")
Handler = Callable[[web.Request, Daemon, Served], Awaitable[dict[str, Any]]]


def check_admin(request: web.BaseRequest, daemon: Daemon) -> None:
    """Raises Unauthorized, Forbidden."""
    if daemon.admin_keys:
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        holder = daemon.admin_keys.holder(key.strip()) if scheme.lower() == "bearer" else None
        if holder is None:
            raise Unauthorized("This path needs a key of --admin-key-file in 'Authorization: Bearer KEY'.")
        request[RECORD].key = holder
        return
    if not _is_local(request) or any(name in request.headers for name in PROXY_HEADERS):
        message = "Only this machine may administer. Start the server with --admin-key-file to allow others."
        raise Forbidden(message, code="admin_not_allowed")
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
        raise Forbidden("Web pages may not administer.", code="origin_not_allowed")


def _is_local(request: web.BaseRequest) -> bool:
    if request.transport is None:
        return False
    if request.transport.get_extra_info("socket").family == socket.AF_UNIX:
        return True
    peer: Any = request.transport.get_extra_info("peername")
    try:
        address = ipaddress.ip_address(peer[0])
    except (TypeError, ValueError, IndexError):
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _guarded(handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        daemon = request.app[DAEMON]
        check_admin(request, daemon)
        answer = await handler(request, daemon, check_ready(daemon))
        return web.json_response(body=orjson.dumps(answer))

    return handle


def _card(served: Served, name: str) -> dict[str, Any]:
    return served.adapters.card(name, served.name) | {"path": served.adapters.path(name)}


@_guarded
async def list_adapters(request: web.Request, daemon: Daemon, served: Served) -> dict[str, Any]:
    return {"object": "list", "data": [_card(served, name) for name in served.adapters.names()]}


@_guarded
async def show_adapter(request: web.Request, daemon: Daemon, served: Served) -> dict[str, Any]:
    return _card(served, _name(request))


@_guarded
async def load_adapter(request: web.Request, daemon: Daemon, served: Served) -> dict[str, Any]:
    """The body is {"name", "path"}; the path is a folder of the server's machine, or a Hugging Face id."""
    name, reference = _wanted(await read_body(request, daemon.config.max_body_bytes, daemon.pool))
    if name in served.names or name == "default":
        raise BadRequest("This name means the model itself.", param="name")
    try:
        folder = await asyncio.to_thread(daemon.find_adapter, reference, served.folder)
    except CannotServe as error:
        raise BadRequest(str(error), param="path", code="adapter_refused") from None
    await served.adapters.load(name, folder, daemon.config.stall_after)
    return _card(served, name)


@_guarded
async def unload_adapter(request: web.Request, daemon: Daemon, served: Served) -> dict[str, Any]:
    name = _name(request)
    await served.adapters.unload(name, daemon.config.stall_after)
    return {"id": name, "object": "model", "deleted": True}


def _name(request: web.Request) -> str:
    return request.match_info["name"].rstrip("/")


def _wanted(raw: bytes) -> tuple[str, str]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise BadRequest("The body is not valid JSON in UTF-8.", code="invalid_json") from None
    if not isinstance(body, dict):
        raise BadRequest("The body must be a JSON object.", code="invalid_json")
    for key in body:
        if key not in ("name", "path"):
            raise BadRequest("Only 'name' and 'path' can be given.", param=key[:64], code="unsupported_parameter")
    name, path = (_text(body, key) for key in ("name", "path"))
    if not NAME.fullmatch(name):
        message = "'name' may hold letters, digits and . _ : / - and begins with a letter or digit; 128 at most."
        raise BadRequest(message, param="name")
    return name, path


def _text(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    if value is None:
        raise BadRequest(f"{key!r} is required.", param=key, code="missing_required_parameter")
    if not isinstance(value, str) or not value:
        raise BadRequest("Expected a non-empty string.", param=key, code="invalid_type")
    return value
