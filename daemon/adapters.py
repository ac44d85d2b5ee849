"""The adapters beside the model, as the door and the replies see them: chosen by name, listed, loaded, unloaded.

`choose` and `fingerprint` may be called in the pool's threads; the rest belongs to the event loop.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from ..executor.engine import Engine
from ..executor.errors import AdapterRefused
from .errors import BadRequest, Conflict, NotFound, Unavailable

log = logging.getLogger(__name__)


class Adapters:
    """What the executor holds by name now. Changes come one at a time, and finish even if nobody waits for them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._created: dict[str, int] = {}
        self._started = int(time.time())
        self._one_at_a_time = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._engine.adapters

    def choose(self, model: str, adapter: str | None) -> str | None:
        """The adapter that a request wants; None is the model itself. Raises NotFound, BadRequest."""
        named = model if model in self else None
        if adapter is None:
            return named
        if adapter not in self:
            raise unknown(adapter)
        if named not in (None, adapter):
            message = f"'model' names the adapter {named!r} and 'adapter' another one: give one of the two."
            raise BadRequest(message, param="adapter")
        return adapter

    def fingerprint(self, name: str, base: str) -> str:
        """Of the model together with an adapter's content."""
        info = self._engine.adapters.get(name)
        identity = f"{base} {info.content_hash if info else ''}"
        return "fp_" + hashlib.sha256(identity.encode()).hexdigest()[:12]

    def names(self) -> tuple[str, ...]:
        return tuple(self._engine.adapters)

    def card(self, name: str, parent: str) -> dict[str, Any]:
        """An adapter's entry in /v1/models: `scale` is what its B A is multiplied by. Raises NotFound."""
        info = self._engine.adapters.get(name)
        if info is None:
            raise unknown(name)
        return {
            "id": name,
            "object": "model",
            "created": self._created.get(name, self._started),
            "owned_by": "soloist",
            "parent": parent,
            "adapter": {
                "format": info.format,
                "rank": info.rank,
                "ranks": list(info.ranks),
                "scale": info.factor,
                "scales": list(info.factors),
                "targets": list(info.targets),
                "pairs": info.pairs,
                "replaced": info.replaced,
                "bytes": info.size,
                "content_hash": info.content_hash,
                "summary": info.summary,
            },
        }

    def path(self, name: str) -> str:
        return self._engine.adapters[name].path

    async def load(self, name: str, folder: Path, within_s: float) -> None:
        """Raises Conflict for a name that is taken, BadRequest when the adapter is refused, Unavailable."""
        await self._change(self._load(name, folder), within_s)

    async def unload(self, name: str, within_s: float) -> None:
        """Requests that use it finish. Raises NotFound, Unavailable."""
        await self._change(self._unload(name), within_s)

    async def _load(self, name: str, folder: Path) -> None:
        async with self._one_at_a_time:
            if name in self:
                raise Conflict(f"An adapter named {name!r} is loaded already: unload it first.", param="name")
            try:
                await self._engine.load_adapter(name, str(folder))
            except AdapterRefused as refused:
                self._check_executor()
                raise BadRequest(str(refused), param="path", code="adapter_refused") from None
            self._created[name] = int(time.time())
            log.info("adapter %s is loaded from %s: %s", name, folder, self._engine.adapters[name].summary)

    async def _unload(self, name: str) -> None:
        async with self._one_at_a_time:
            try:
                await self._engine.unload_adapter(name)
            except AdapterRefused:
                self._check_executor()
                raise unknown(name) from None
            self._created.pop(name, None)
            log.info("adapter %s is unloaded", name)

    def _check_executor(self) -> None:
        """A refusal of the executor that is gone says nothing about the adapter."""
        health = self._engine.health()
        if not health.ready:
            raise Unavailable("The executor failed while it changed its adapters.", code="executor_failed")

    async def _change(self, change: Coroutine[Any, Any, None], within_s: float) -> None:
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        done, _ = await asyncio.wait({task}, timeout=within_s)
        if not done:
            task.add_done_callback(lambda late: late.cancelled() or late.exception())  # its fault has no reader now
            raise Unavailable("The executor has not got to it yet; it will.", code="deadline_exceeded")
        task.result()


def unknown(name: str) -> NotFound:
    return NotFound(f"No adapter named {name[:200]!r} is served here.", param="adapter", code="model_not_found")
