"""The council's front: what is answered here, what is refused, what a request is known by, and where it goes."""

from collections.abc import Iterator, Sequence

from .council_answers import UNKNOWN_MODEL, health_lines, model_lines, refuse
from .council_config import Council
from .council_routes import Route, backend_name

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings")
LOG_FORMAT = (
    "at=%tr request=%ID client=%ci route=%b instance=%s model=%{+Q}[var(txn.model)] status=%ST bytes=%B "
    "retries=%rc queued_ms=%Tw first_byte_ms=%Tr total_ms=%Ta end=%tsc"
)


def front_lines(council: Council, routes: Sequence[Route], default: Route | None) -> Iterator[str]:
    """The lines of the frontend; their order is the order of evaluation."""
    yield f"bind {council.address}"
    yield "unique-id-format %{+X}o%rt-%Ts-%pid"
    yield "log-format '" + LOG_FORMAT + "'"
    yield "acl reads method GET HEAD"
    yield from health_lines(routes)
    yield from model_lines(routes)
    yield f"acl generates path {' '.join(PATHS)} {' '.join(path + '/' for path in PATHS)}"
    yield refuse(404, "not_found", "There is nothing at this path of the council.") + " if !generates"
    yield from _reading(council)
    yield from _affinity(council)
    yield from _routing(council, routes, default)


def _reading(council: Council) -> Iterator[str]:
    """The whole body into the buffer, or 413."""
    yield f"acl too_large req.hdr_val(content-length) gt {council.largest_body}"
    yield "acl too_large req.hdr(content-length),length gt 15"
    yield "http-request use-service lua.too_large if METH_POST too_large"
    yield f"http-request wait-for-body time {round(council.body_timeout * 1000)}ms if METH_POST"
    # A chunked body tells its length only now; one that fills the buffer is longer than allowed, too.
    yield f"http-request use-service lua.too_large if {{ req.body_len gt {council.largest_body} }}"
    yield "http-request set-header X-Request-Id %[unique-id] unless { req.hdr(x-request-id) -m found }"
    yield "http-request set-var(txn.model) req.body,json_query('$.model')"


def _affinity(council: Council) -> Iterator[str]:
    """txn.key: a session header, else what the script finds in the body."""
    for header in council.session_headers:
        yield (
            f"http-request set-var(txn.key) req.hdr({header}) "
            f"if !{{ var(txn.key) -m found }} {{ req.hdr({header}) -m len gt 0 }}"
        )
    yield "http-request lua.affinity if METH_POST !{ var(txn.key) -m found }"
    yield "http-request lua.affinity if METH_POST !{ var(txn.model) -m found }"


def _routing(council: Council, routes: Sequence[Route], default: Route | None) -> Iterator[str]:
    yield "acl named var(txn.model) -m len gt 0"
    yield "acl unnamed var(txn.model) -m str default"
    if default is None:
        missing = refuse(400, "model_required", "Name a model: this council serves several.", "model")
        yield f"{missing} if METH_POST !named"
    else:
        name = council.default or default.names[0]
        yield f"http-request set-var(txn.model) str({name}) if !named || unnamed"
    for route in routes:
        yield f"acl for_{route.key} var(txn.model) -m str -- {' '.join(route.names)}"
    unknown = refuse(404, "model_not_found", UNKNOWN_MODEL, "model")
    yield f"{unknown} if METH_POST {' '.join(f'!for_{route.key}' for route in routes)}"
    for route in routes:
        yield from _tiers(route)
    yield f"default_backend {backend_name((default or routes[0]), 0)}"


def _tiers(route: Route) -> Iterator[str]:
    """The best tier that has an instance up; the last one is asked in any case."""
    for tier, instances in enumerate(route.tiers[:-1]):
        name = backend_name(route, tier)
        for instance in instances:
            yield f"acl up_{name} srv_is_up({name}/{instance.name})"
        yield f"use_backend {name} if for_{route.key} up_{name}"
    yield f"use_backend {backend_name(route, len(route.tiers) - 1)} if for_{route.key}"
