"""What a client is told when a request does not work out: one tree, and its one shape on the wire.

ApiError                     status, code and param of an OpenAI error object
├── BadRequest          400  a field is wrong; `param` names it
│   └── ContextExceeded 400  the prompt does not fit into the model's context
├── Unauthorized        401  no key, or a wrong one
├── Forbidden           403  a Host or Origin that we do not answer, or a path for others
├── NotFound            404  no such path or model
├── WrongMethod         405  the path exists, the method does not
├── Conflict            409  what is asked for exists already
├── TooLarge            413  body or prompt beyond what can be served
├── WrongMediaType      415  not JSON, or an unknown content coding
├── WrongExpectation    417  an Expect header other than 100-continue
├── Internal            500  our own fault; the log has the details
└── Unavailable         503  loading, overloaded, draining, executor failed, deadline; says when to come again
"""

from collections.abc import Mapping
from typing import Any

import orjson

from ..executor.errors import Refused
from ..executor.request import Failure

RETRY_SOON = 1


class ApiError(Exception):
    """`message` is written for the person who reads the client's log; it never holds the text of a Python exception."""

    status = 500
    type = "invalid_request_error"
    code: str | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code
        self.headers: dict[str, str] = {}

    def document(self) -> dict[str, Any]:
        """The OpenAI error object; all four members are always there."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def body(self) -> bytes:
        return orjson.dumps(self.document())


class BadRequest(ApiError):
    status = 400
    code = "invalid_value"


class ContextExceeded(BadRequest):
    code = "context_length_exceeded"

    def __init__(self, prompt_tokens: int, context: int, param: str, *, about: str = "") -> None:
        """about: how exact the number is, such as "at least "."""
        super().__init__(
            f"This model's maximum context length is {context} tokens, and the prompt has {about}{prompt_tokens} "
            "tokens: at least one more is needed for an answer. Please shorten the prompt.",
            param=param,
        )


class Unauthorized(ApiError):
    status = 401
    code = "invalid_api_key"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.headers["WWW-Authenticate"] = "Bearer"


class Forbidden(ApiError):
    status = 403
    code = "forbidden"


class NotFound(ApiError):
    status = 404
    code = "not_found"


class WrongMethod(ApiError):
    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.headers["Allow"] = allowed


class Conflict(ApiError):
    status = 409
    code = "already_exists"


class TooLarge(ApiError):
    status = 413
    code = "request_too_large"


class WrongMediaType(ApiError):
    status = 415
    code = "unsupported_media_type"


class WrongExpectation(ApiError):
    status = 417
    code = "expectation_failed"


class Internal(ApiError):
    status = 500
    type = "server_error"
    code = "internal_error"

    def __init__(self) -> None:
        super().__init__("The server failed while it answered this request. The server's log has the details.")


class Unavailable(ApiError):
    status = 503
    type = "server_error"
    code = "unavailable"

    def __init__(self, message: str, *, code: str | None = None, retry_after_s: float | None = RETRY_SOON) -> None:
        super().__init__(message, code=code)
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(max(1, round(retry_after_s)))


_CODES: Mapping[str, str] = {"dead": "executor_failed", "deadline": "deadline_exceeded"}


def from_executor(kind: str, message: str, retry_after_s: float | None = RETRY_SOON) -> ApiError:
    """The client's view of a refusal or failure of the executor."""
    if kind == "invalid":
        return BadRequest(message)
    if kind == "too_large":
        return TooLarge(message)
    return Unavailable(message, code=_CODES.get(kind, kind), retry_after_s=retry_after_s)


def from_refused(refused: Refused) -> ApiError:
    return from_executor(refused.kind, refused.message, refused.retry_after_s)


def from_failure(failure: Failure) -> ApiError:
    return from_executor(failure.kind, failure.message)
