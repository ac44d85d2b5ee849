"""The connection: aiohttp's protocol, but that broken HTTP is answered in OpenAI's shape too."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from .errors import ApiError, BadRequest, Internal
from .middleware import SERVER, error_response, new_request_id

log = logging.getLogger(__name__)
IDLE_S = 75.0
NO_ACCESS_LOG = logging.getLogger("soloist.access.off")  # aiohttp formats a line only where this is enabled
NO_ACCESS_LOG.disabled = True


class Connection(web.RequestHandler):
    """One client connection."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Called where no handler could be: bytes that are no HTTP, or a fault outside the middlewares."""
        error: ApiError = Internal()
        if isinstance(exc, HttpProcessingError):
            error = BadRequest("The request is not well-formed HTTP.", code="invalid_http")
        else:
            log.error("fault outside the handlers", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the response has already begun")
        response = error_response(error)
        response.headers["Server"] = SERVER
        response.headers["X-Request-Id"] = new_request_id()
        response.headers["Access-Control-Allow-Origin"] = "*"  # the request's own Origin could not be read
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """A body that breaks off or is no chunk after all is the client's fault, and has been answered."""
        if isinstance(kwargs.get("exc_info"), RequestPayloadError):
            log.debug("a request's body was broken")
        else:
            super().log_exception(*args, **kwargs)


def factory(server: web.Server) -> Callable[[], Connection]:
    """For `loop.create_server`: connections that belong to an application's server."""
    loop = asyncio.get_running_loop()
    return lambda: Connection(
        server, loop=loop, keepalive_timeout=IDLE_S, access_log=NO_ACCESS_LOG, auto_decompress=False
    )
