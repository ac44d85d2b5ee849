"""CORS (Fetch standard): which web pages may read answers. Headers go onto every response, errors and streams alike.

The default is any origin, because local pages and editor extensions call from origins that nobody can foresee; the
Host guard and the API key protect the server. `--cors-origin` narrows it, `--cors-origin none` closes it.
"""

from collections.abc import MutableMapping

from aiohttp import web

from .config import Config

EXPOSED = "Retry-After, X-Request-Id, X-Soloist-Ignored, X-Soloist-Seed"
METHODS = "GET, HEAD, POST, OPTIONS"
USUAL_HEADERS = "Authorization, Content-Type"
MAX_AGE = "600"


def allow_origin(origin: str | None, config: Config, headers: MutableMapping[str, str]) -> None:
    """Say that this origin may read the response. The origin is echoed, so caches must keep answers apart by it."""
    if "none" in config.cors_origin:
        return
    add_vary(headers, "Origin")
    if origin is not None and ("*" in config.cors_origin or origin in config.cors_origin):
        headers["Access-Control-Allow-Origin"] = origin
        headers["Access-Control-Expose-Headers"] = EXPOSED


def add_vary(headers: MutableMapping[str, str], name: str) -> None:
    present = headers.get("Vary")
    headers["Vary"] = name if present is None else f"{present}, {name}"


def preflight(request: web.BaseRequest, allowed: str) -> web.Response:
    """The answer to OPTIONS. The wildcard does not cover Authorization, so the names that were asked for are echoed."""
    response = web.Response(status=204, headers={"Allow": allowed})
    if "Access-Control-Request-Method" in request.headers:
        wanted = request.headers.get("Access-Control-Request-Headers", USUAL_HEADERS)
        response.headers["Access-Control-Allow-Methods"] = METHODS
        response.headers["Access-Control-Allow-Headers"] = wanted
        response.headers["Access-Control-Max-Age"] = MAX_AGE
        add_vary(response.headers, "Access-Control-Request-Headers")
        if request.headers.get("Access-Control-Request-Private-Network") == "true":
            response.headers["Access-Control-Allow-Private-Network"] = "true"
    return response
