"""Who may call: the Host and Origin guard against web pages that reach for a local server, and the API key.

A page of a foreign site can make a browser resolve its own name to 127.0.0.1 (DNS rebinding); the Host header then
still carries that name. Names that nobody can register in public DNS pass: IP literals, localhost, names without a
dot, *.local, the bound host, and what --allowed-host adds.
"""

import ipaddress
from urllib.parse import urlsplit

from aiohttp import web

from .config import Config
from .errors import BadRequest, Forbidden, Unauthorized
from .keys import Keys

OPEN_PATHS = ("/health", "/health/live", "/health/ready", "/health/deep", "/metrics")
ADMIN_PATH = "/v1/adapters"
DRAIN_PATH = "/admin/drain"


def check_host(request: web.BaseRequest, config: Config) -> None:
    """Raises Forbidden for a foreign name, BadRequest where HTTP/1.1 demands a Host and there is none, or two."""
    hosts = request.headers.getall("Host", [])
    if len(hosts) > 1 or (not hosts and request.version >= (1, 1)):
        raise BadRequest("A request must carry exactly one Host header.", code="invalid_host")
    if hosts and not host_allowed(hosts[0], config):
        raise Forbidden(
            "This Host name is not served. Start the server with --allowed-host to allow it.", code="host_not_allowed"
        )


def host_allowed(host: str, config: Config) -> bool:
    name = _name(host)
    if "*" in config.allowed_host or name in {allowed.lower() for allowed in config.allowed_host}:
        return True
    if "." not in name or name == config.host.lower() or name.endswith((".localhost", ".local")):
        return True
    return _is_address(name)


def _name(host: str) -> str:
    """The host without its port and without the brackets of an IPv6 literal."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_origin(request: web.BaseRequest, config: Config) -> None:
    """With a closed list of origins, a request that a page of another origin makes is refused, not only unreadable."""
    origin = request.headers.get("Origin")
    if origin is None or "*" in config.cors_origin or origin in config.cors_origin:
        return
    if urlsplit(origin).netloc != request.headers.get("Host"):
        raise Forbidden(
            "This Origin may not call. Start the server with --cors-origin to allow it.", code="origin_not_allowed"
        )


def is_admin(request: web.BaseRequest) -> bool:
    """Whether the path is one of those that change what is served."""
    return request.path.rstrip("/") in (ADMIN_PATH, DRAIN_PATH) or request.path.startswith(ADMIN_PATH + "/")


def check_key(request: web.BaseRequest, keys: Keys) -> str | None:
    """The name of the caller's key. Raises Unauthorized."""
    if not keys or request.path.rstrip("/") in OPEN_PATHS:
        return None
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if not key or scheme.lower() != "bearer":
        raise Unauthorized("No API key: send it in the header 'Authorization: Bearer KEY'.")
    holder = keys.holder(key.strip())
    if holder is None:
        raise Unauthorized("Incorrect API key.")
    return holder
