"""What all handlers share: the configuration, the executor, the model once it is loaded, and whether we are leaving."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from aiohttp import web

from ..executor.engine import Engine
from ..executor.health import Health
from .config import Config
from .errors import Unavailable
from .keys import Keys
from .served import Served

from .metrics import Metrics
LOADING_RETRY_S = 5
NO_EXECUTOR = Health(
    state="loading", reason=None, last_step_age_s=None, oldest_job_age_s=None, queue_depth=0, running=0, generation=0,
    steps=0, last_error=None, canary=None, thread=None, thread_id=None, stream=None, device=None, seed_state=None,
)  # fmt: skip


@dataclass(slots=True)
class Daemon:
    """Owned by the event loop. pool: the worker threads for JSON, templates and tokenising. phase: what a start is at.

    engine and served are None until the model is there. answering: requests that are inside a handler that generates.
    """

    config: Config
    keys: Keys
    pool: ThreadPoolExecutor
    engine: Engine | None = None
    served: Served | None = None
    phase: str = "starting"
    draining: bool = False
    answering: int = 0
    started: float = field(default_factory=time.monotonic)

    def admit(self) -> tuple[Served, Engine]:
        """What to serve a request with. Raises Unavailable while there is none, and when we are leaving."""
        if self.draining:
            raise Unavailable("The server is shutting down.", code="draining")
        if self.served is None or self.engine is None:
            raise Unavailable(
                f"The model is not there yet: {self.phase}.", code="loading", retry_after_s=LOADING_RETRY_S
            )
        return self.served, self.engine

    metrics: Metrics = field(default_factory=Metrics)
    def health(self) -> Health:
        """The executor's own word, or that there is none yet."""
        return NO_EXECUTOR if self.engine is None else self.engine.health()

    def deadline(self) -> float | None:
        timeout = self.config.request_timeout
        return None if timeout is None else time.monotonic() + timeout


DAEMON = web.AppKey("daemon", Daemon)
