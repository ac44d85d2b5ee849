"""Reading a request's body: JSON only, within the limit, and 100 Continue only once the request may go on."""

import asyncio
import zlib
from concurrent.futures import Executor

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from .errors import BadRequest, TooLarge, WrongExpectation, WrongMediaType

CODINGS = ("identity", "gzip", "deflate")
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


async def read_body(request: web.Request, most: int, pool: Executor) -> bytes:
    """The bytes, decompressed. Raises ApiError; is cancelled when the client goes away half-way."""
    coding = _check_headers(request, most)
    await _continue(request)
    try:
        raw = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise _too_large(most) from None
    except (RequestPayloadError, HttpProcessingError):
        raise BadRequest("The body's framing is broken.", code="invalid_body") from None
    if coding == "identity":
        return raw
    return await asyncio.get_running_loop().run_in_executor(pool, _unpack, raw, most)


def _unpack(raw: bytes, most: int) -> bytes:
    """Never makes more than `most` bytes of a small bomb."""
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        unpacked = unpacker.decompress(raw, most + 1)
    except zlib.error:
        raise BadRequest("The body's compression is broken.", code="invalid_body") from None
    if len(unpacked) > most:
        raise _too_large(most)
    if not unpacker.eof:
        raise BadRequest("The body's compression breaks off.", code="invalid_body")
    return unpacked


def _check_headers(request: web.Request, most: int) -> str:
    """Returns the content coding."""
    if request.content_length is not None and request.content_length > most:
        raise _too_large(most)
    coding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in CODINGS:
        raise WrongMediaType(f"Content-Encoding must be one of {', '.join(CODINGS)}.")
    if "Content-Type" in request.headers and not _is_json(request):
        raise WrongMediaType("The body must be JSON: send the header 'Content-Type: application/json'.")
    return coding


def _is_json(request: web.Request) -> bool:
    kind = request.content_type
    charset = (request.charset or "utf-8").lower()
    return (kind == "application/json" or kind.endswith("+json")) and charset in ("utf-8", "utf8", "us-ascii")


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"The body is larger than the {most} bytes that this server reads (--max-body-bytes).")


async def _continue(request: web.Request) -> None:
    """Tell a client that waits for it to send its body (RFC 9110, section 10.1.1)."""
    expectation = request.headers.get("Expect")
    if expectation is None or request.version < (1, 1):
        return
    if expectation.strip().lower() != "100-continue":
        raise WrongExpectation("The only expectation that this server meets is 100-continue.")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # so that a later fault still gets its own answer


async def later(request: web.Request) -> None:
    """In place of aiohttp's own answer to Expect: `read_body` sends it, after the request has been let in."""
