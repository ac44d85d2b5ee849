"""The HAProxy configuration of a council, as text. Directives are those of HAProxy 2.6's configuration manual.

What it relies on: a request is read whole into one buffer before it is routed, so that the model can be read from it
and the request can be sent again; nothing is sent again once a byte of an answer has gone to the client.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from .council_answers import error_lines
from .council_config import Council, Instance
from .council_front import front_lines
from .council_routes import Route, backend_name, default_route, plan_routes

HEAD_ROOM = 64 * 1024  # of the buffer, beside the body: request line, headers, and what HAProxy may add to them
SCRIPT = "council.lua"
SOCKET = "haproxy.sock"


def render(council: Council, folder: Path) -> str:
    """The text of haproxy.cfg; `folder` is where it, its script and its control socket lie. Raises CouncilError."""
    routes = plan_routes(council)
    sections = [
        _section("global", _global(council, folder)),
        _section("defaults", _defaults(council)),
        _section("frontend council", front_lines(council, routes, default_route(council, routes))),
        *_backends(council, routes),
    ]
    if council.metrics:
        sections.append(_section("frontend metrics", _metrics(council.metrics)))
    return "# Written by `soloist council render`; edit the council's own file instead.\n" + "\n".join(sections)


def buffer_size(council: Council) -> int:
    """Bytes: the largest body and its headers fit, as routing by body and sending again both need."""
    return council.largest_body + HEAD_ROOM


def _section(title: str, lines: Iterator[str]) -> str:
    return "\n".join([title, *(f"    {line}" for line in lines), ""])


def _ms(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"


def _quoted(value: Path) -> str:
    """In HAProxy's weak quotes, in which a backslash, a quote and a dollar are special."""
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$") + '"'


def _global(council: Council, folder: Path) -> Iterator[str]:
    yield f"maxconn {council.max_connections}"
    yield f"tune.bufsize {buffer_size(council)}"
    yield f"tune.maxrewrite {HEAD_ROOM // 4}"
    yield f"lua-load-per-thread {_quoted(folder / SCRIPT)}"
    yield f"stats socket {_quoted(folder / SOCKET)} mode 600 level admin"
    yield f"hard-stop-after {_ms(council.leave_within)}"
    yield "log stdout format raw daemon"


def _defaults(council: Council) -> Iterator[str]:
    yield from ("mode http", "log global", "option dontlognull")
    yield "option http-no-delay"  # each event goes on as it comes
    yield "option abortonclose"  # a client that leaves cancels what it waits for
    yield "option redispatch 1"
    yield f"retries {council.retries}"
    yield "retry-on conn-failure empty-response junk-response response-timeout 503"
    yield f"timeout connect {_ms(council.connect_timeout)}"
    yield f"timeout http-request {_ms(council.body_timeout)}"
    yield f"timeout queue {_ms(council.body_timeout)}"
    # Silence, not length: a stream may last for ever, and an answer that is not streamed is silent until it is whole.
    yield f"timeout client {_ms(council.answer_timeout)}"
    yield f"timeout server {_ms(council.answer_timeout)}"
    yield "timeout http-keep-alive 60s"
    yield f"timeout check {_ms(council.check_timeout)}"
    yield from _choosing(council)
    yield from _checking(council)
    yield from error_lines()


def _choosing(council: Council) -> Iterator[str]:
    """For requests that have no home, or whose home fails: the next one by hash, and without a key in turn."""
    yield "balance hash var(txn.key)"
    yield "hash-type consistent crc32 avalanche"
    yield f"hash-balance-factor {council.balance_factor}"


def _checking(council: Council) -> Iterator[str]:
    """What is down gets nothing new. Its running requests are `council_release`'s: to end them here, with
    on-marked-down shutdown-sessions, kills those that are on their way from it to another instance."""
    yield "option httpchk"
    yield "http-check send meth GET uri /health/ready ver HTTP/1.1 hdr Host council hdr Connection close"
    # "Conditionally passed" takes an instance out of the rotation and lets its running requests finish.
    yield 'http-check expect ! rstring \'"state": ?"draining"\' error-status L7OKC'
    yield "http-check expect status 200"
    yield (
        f"default-server check inter {_ms(council.check_every)} fall {council.check_fall} rise {council.check_rise} "
        "observe layer4 error-limit 2 on-error mark-down"
    )


def _backends(council: Council, routes: Sequence[Route]) -> Iterator[str]:
    for route in routes:
        for tier in range(len(route.tiers)):
            yield _section(f"backend {backend_name(route, tier)}", _backend(council, route, tier))


def _backend(council: Council, route: Route, tier: int) -> Iterator[str]:
    """One tier; the tiers below it are its backups, for requests that are under way when its last instance dies."""
    yield f"http-request lua.place {backend_name(route, tier)}"
    yield "use-server %[var(txn.home)] if { var(txn.home) -m found }"
    yield "http-response set-header X-Council-Instance %s"
    for instance in route.tiers[tier]:
        yield _server(council, instance)
    for instance in (instance for lower in route.tiers[tier + 1 :] for instance in lower):
        yield _server(council, instance) + " backup"


def _server(council: Council, instance: Instance) -> str:
    line = f"server {instance.name} {instance.address} id {instance.id}"
    if council.guardian:
        host, _, port = council.guardian.rpartition(":")
        line += f" agent-check agent-addr {host} agent-port {port} agent-inter {_ms(council.check_every)}"
        line += f' agent-send "{instance.name}\\n"'
    return line


def _metrics(address: str) -> Iterator[str]:
    yield f"bind {address}"
    yield "http-request use-service prometheus-exporter if { path /metrics }"
    yield "http-request return status 404"
