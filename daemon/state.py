"""What all handlers share: the configuration, the executor, the model once it is loaded, and whether we are leaving."""

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from ..executor.engine import Engine
from ..executor.health import Health
from .config import Config
from .errors import BadRequest, Unavailable
from .keys import Keys, read_admin_keys
from .metrics import Metrics
from .served import Served

LOADING_RETRY_S = 5
FindAdapter = Callable[[str, Path], Path]
"""From what a user calls an adapter, and the model's folder, to a folder that fits. Raises CannotServe."""
NO_EXECUTOR = Health(
    state="loading", reason=None, last_step_age_s=None, oldest_job_age_s=None, queue_depth=0, running=0, generation=0,
    steps=0, last_error=None, canary=None, thread=None, thread_id=None, stream=None, device=None, seed_state=None,
)  # fmt: skip


def as_folder(reference: str, model: Path) -> Path:
    """An adapter's reference read as a path, unchecked: the executor refuses what does not fit."""
    return Path(reference)


@dataclass(slots=True)
class Daemon:
    """Owned by the event loop. pool: the worker threads for JSON, templates and tokenising. phase: what a start is at.

    engine and served are None until the model is there. answering: requests that are inside a handler that generates.
    leave: ends the process as SIGTERM does; None where the process is not ours to end.
    """

    config: Config
    keys: Keys
    pool: ThreadPoolExecutor
    find_adapter: FindAdapter = as_folder
    admin_keys: Keys = field(init=False)
    engine: Engine | None = None
    served: Served | None = None
    phase: str = "starting"
    draining: bool = False
    answering: int = 0
    leave: Callable[[], None] | None = None
    started: float = field(default_factory=time.monotonic)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.admin_keys = read_admin_keys(self.config)

    def admit(self) -> tuple[Served, Engine]:
        """What to serve a request with. Raises Unavailable while there is none, and when we are leaving."""
        if self.draining:
            raise Unavailable("The server is shutting down.", code="draining")
        if self.served is None or self.engine is None:
            raise Unavailable(
                f"The model is not there yet: {self.phase}.", code="loading", retry_after_s=LOADING_RETRY_S
            )
        return self.served, self.engine

    def health(self) -> Health:
        """The executor's own word, or that there is none yet."""
        return NO_EXECUTOR if self.engine is None else self.engine.health()

    def deadline(self, wanted_ms: str | None) -> float | None:
        """When a request must be done (`time.monotonic`): the server's bound, or an earlier one of the client's own.

        wanted_ms: the value of `x-soloist-deadline-ms`. Raises BadRequest.
        """
        bounds = [] if self.config.request_timeout is None else [self.config.request_timeout]
        if wanted_ms is not None:
            if not re.fullmatch("[1-9][0-9]{0,11}", wanted_ms):
                raise BadRequest(f"{DEADLINE!r} must be a whole number of milliseconds, at least 1.", param=DEADLINE)
            bounds.append(int(wanted_ms) / 1000)
        return time.monotonic() + min(bounds) if bounds else None


DEADLINE = "x-soloist-deadline-ms"
DAEMON = web.AppKey("daemon", Daemon)
