"""What the council says itself, in OpenAI's shapes: errors, the list of models, health."""

import json
from collections.abc import Iterator, Sequence

from .council_routes import Route, backend_name

JSON = "content-type application/json"
ERRORS = {
    400: ("invalid_request_error", "bad_request", "The request is not valid HTTP."),
    408: ("invalid_request_error", "timeout", "The request did not arrive in time."),
    413: ("invalid_request_error", "request_too_large", "The request is larger than this council takes."),
    500: ("server_error", "internal_error", "The council failed."),
    502: ("server_error", "bad_gateway", "The instance gave no valid answer."),
    503: ("server_error", "unavailable", "No instance can serve this now."),
    504: ("server_error", "timeout", "The instance did not answer in time."),
}
# The name is cut and escaped by HAProxy; the rest is ours.
UNKNOWN_MODEL = 'The model \\"%[var(txn.model),bytes(0,200),json(utf8s)]\\" does not exist here.'


def error_body(kind: str, code: str | None, message: str, param: str | None = None) -> str:
    """OpenAI's error object."""
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def error_lines() -> Iterator[str]:
    """What HAProxy's own errors look like."""
    for status, (kind, code, message) in ERRORS.items():
        retry = " hdr Retry-After 2" if status == 503 else ""
        yield f"http-error status {status} {JSON} string '{error_body(kind, code, message)}'{retry}"


def refuse(status: int, code: str, message: str, param: str | None = None) -> str:
    """A rule that answers with an error. A message that HAProxy fills in is already escaped."""
    body = error_body("invalid_request_error", code, "@", param).replace("@", message)
    return f"http-request return status {status} {JSON} lf-string '{body}'"


def health_lines(routes: Sequence[Route]) -> Iterator[str]:
    """Ready while any instance is; the document counts the ready instances of each route's best tier."""
    for name in _backends(routes):
        yield f"acl anyone nbsrv({name}) gt 0"
    counts = ", ".join(f'"{name}": %[nbsrv({backend_name(route, 0)})]' for route in routes for name in route.names)
    yield f'http-request return {JSON} string \'{{"status": "ok"}}\' if reads {{ path /health/live }}'
    for status, word, when in ((200, "ok", "anyone"), (503, "unavailable", "!anyone")):
        document = f'{{"status": "{word}", "instances": {{{counts}}}}}'
        yield (
            f"http-request return status {status} {JSON} lf-string '{document}' hdr Cache-Control no-store "
            f"if reads {{ path /health /health/ready }} {when}"
        )


def model_lines(routes: Sequence[Route]) -> Iterator[str]:
    """The union of all names; 503 while no instance is ready, because old guardians probe only this."""
    cards = [_card(name) for route in routes for name in route.names]
    yield "acl lists path /v1/models /v1/models/"
    yield "http-request deny deny_status 503 if reads lists !anyone"
    listing = json.dumps({"object": "list", "data": cards})
    yield f"http-request return {JSON} string '{listing}' if reads lists"
    for card in cards:
        yield f"http-request return {JSON} string '{json.dumps(card)}' if reads {{ path /v1/models/{card['id']} }}"


def _card(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "council"}


def _backends(routes: Sequence[Route]) -> Iterator[str]:
    for route in routes:
        yield from (backend_name(route, tier) for tier in range(len(route.tiers)))
