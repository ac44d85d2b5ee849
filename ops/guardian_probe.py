"""One visit to an instance: ready, models, and now and then two tokens that are really drawn.

The completion is what a default client sends: no temperature, no seed. Only this path shows an executor whose greedy
path works and whose sampled one does not, and a server that answers 200 with nothing inside.
"""

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp

Outcome = Literal["ok", "refused", "timeout", "hollow", "status"]
LONGEST_ANSWER = 1 << 20


@dataclass(frozen=True, slots=True)
class Probe:
    """refused: no connection, or a broken one. hollow: 200 with nothing, or nothing that makes sense, inside."""

    outcome: Outcome
    seconds: float
    status: int | None = None
    document: Any = None

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a visit found. deep, completion: None where no token was asked for. after: health once those had failed."""

    ready: Probe
    models: Probe | None = None
    deep: Probe | None = None
    completion: Probe | None = None
    after: Probe | None = None

    @property
    def health(self) -> dict[str, Any] | None:
        """The newest health document, if the instance has one."""
        newest = self.after or self.ready
        return newest.document if isinstance(newest.document, dict) and "state" in newest.document else None

    def probes(self) -> dict[str, Probe]:
        found = {name: getattr(self, name) for name in ("ready", "models", "deep", "completion")}
        return {name: probe for name, probe in found.items() if probe is not None}


class Visitor:
    """Probes one instance. url: of its root."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, key: str | None, ready_within: float, deep_within: float
    ) -> None:
        self._session = session
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._ready_within = ready_within
        self._deep_within = deep_within

    async def visit(self, deep: bool) -> Reading:
        """Never raises for what the instance does. Takes at most the deadlines of its probes."""
        ready, models = await asyncio.gather(
            self._probe("/health/ready", self._ready_within), self._probe("/v1/models", self._ready_within)
        )
        if ready.status not in (200, 404) or not deep:
            return Reading(ready, models)
        drawn, completion = await asyncio.gather(
            self._probe("/health/deep", self._deep_within),
            self._probe("/v1/completions", self._deep_within, _request(models)),
        )
        completion = _weighed(completion)
        after = None
        if not (drawn.ok and completion.ok):
            after = await self._probe("/health/ready", self._ready_within)
        return Reading(ready, models, drawn, completion, after)

    async def _probe(self, path: str, within: float, body: Any = None) -> Probe:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(within):
                method = "GET" if body is None else "POST"
                options = {"json": body, "headers": self._headers, "allow_redirects": False}
                async with self._session.request(method, self._url + path, **options) as response:
                    text = await _read(response)
        except TimeoutError:
            return Probe("timeout", time.monotonic() - begun)
        except (aiohttp.ClientError, OSError):
            return Probe("refused", time.monotonic() - begun)
        return _understood(response.status, text, time.monotonic() - begun)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    text = b""
    async for part in response.content.iter_chunked(65536):
        text += part
        if len(text) > LONGEST_ANSWER:
            break
    return text


def _understood(status: int, text: bytes, seconds: float) -> Probe:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if status != 200:
        return Probe("status", seconds, status, document)
    return Probe("ok" if isinstance(document, dict) and document else "hollow", seconds, status, document)


def _request(models: Probe) -> dict[str, Any]:
    """The first model of the list; without a list, whatever the server serves."""
    request: dict[str, Any] = {"prompt": "Hello", "max_tokens": 1}
    with suppress(TypeError, KeyError, IndexError):
        request["model"] = models.document["data"][0]["id"]
    return request


def _weighed(probe: Probe) -> Probe:
    """A 200 counts only with a token inside. Its text may be empty: half of a character, or a control token."""
    if not probe.ok:
        return probe
    try:
        tokens = probe.document.get("usage", {}).get("completion_tokens", 0)
        drew = tokens > 0 or bool(probe.document["choices"][0]["text"])
    except (AttributeError, TypeError, KeyError, IndexError):
        drew = False
    return probe if drew else Probe("hollow", probe.seconds, probe.status, probe.document)
