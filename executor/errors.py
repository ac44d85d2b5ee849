"""What the executor's asyncio face raises.

ExecutorError
├── Refused          a request was not taken; it says why and when to come again
├── AdapterRefused   an adapter was not loaded or unloaded; everything is as it was
└── ModelLoadError   the model could not be loaded; the thread has ended
"""

from typing import Literal

RefusalKind = Literal["loading", "overloaded", "draining", "dead", "invalid", "too_large"]


class ExecutorError(Exception):
    """Root of what this room raises."""


class Refused(ExecutorError):
    """The request never entered the inbox. `retry_after_s` is None where coming again would not help."""

    def __init__(self, kind: RefusalKind, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.kind: RefusalKind = kind
        self.message = message
        self.retry_after_s = retry_after_s


class AdapterRefused(ExecutorError):
    """The message says what is wrong with the adapter."""


class ModelLoadError(ExecutorError):
    """The model folder could not be turned into a model that draws a token."""
