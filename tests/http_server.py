"""A real daemon in a thread of the test process, and a plain client: what goes over the socket is what clients see."""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soloist.daemon.address import bind, read_tls
from soloist.daemon.config import Config
from soloist.daemon.keys import read_keys
from soloist.daemon.leave import drain
from soloist.daemon.serve import open_http
from soloist.daemon.start import load_model
from soloist.daemon.state import Daemon

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "hi"}]
PATIENCE = 20.0


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def choice(self) -> Any:
        return self.json["choices"][0]

    @property
    def text(self) -> str:
        choice = self.choice
        return choice["text"] if "text" in choice else choice["message"]["content"]


@dataclass
class Events:
    """A stream of server-sent events, taken apart."""

    status: int
    headers: dict[str, str]
    lines: list[bytes] = field(default_factory=list)

    @property
    def data(self) -> list[str]:
        return [line[6:].decode() for line in self.lines if line.startswith(b"data: ")]

    @property
    def comments(self) -> list[str]:
        return [line.decode() for line in self.lines if line.startswith(b":")]

    @property
    def chunks(self) -> list[Any]:
        return [json.loads(data) for data in self.data if data != "[DONE]"]

    @property
    def done(self) -> bool:
        return bool(self.data) and self.data[-1] == "[DONE]"

    def of(self, index: int = 0) -> list[Any]:
        return [c for chunk in self.chunks for c in chunk.get("choices", []) if c["index"] == index]

    @property
    def text(self) -> str:
        return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in self.of())


class Client:
    """Speaks HTTP/1.1 to one port, one connection a request."""

    def __init__(self, port: int, headers: dict[str, str] | None = None) -> None:
        self.port = port
        self.headers = headers or {}

    @contextmanager
    def _open(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            kind = {"Content-Type": "application/json"} if data is not None else {}
            connection.request(method, path, data, {**kind, **self.headers, **headers})
            yield connection.getresponse()
        finally:
            connection.close()

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        with self._open(method, path, body, _spelled(headers)) as response:
            return Reply(response.status, _lower(response), response.read())

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, **headers)

    def chat(self, messages: Any = HI, **fields: Any) -> Reply:
        return self.request("POST", CHAT, {"messages": messages, **fields})

    def complete(self, prompt: Any = "x", **fields: Any) -> Reply:
        return self.request("POST", COMPLETIONS, {"prompt": prompt, **fields})

    def events(self, path: str, body: dict[str, Any], first: int | None = None) -> Events:
        """Read a stream to its end, or hang up after its first data lines."""
        with self._open("POST", path, {**body, "stream": True}, {}) as response:
            events = Events(response.status, _lower(response))
            while line := response.readline():
                if line.strip():
                    events.lines.append(line.rstrip(b"\n"))
                if first is not None and len(events.data) >= first:
                    break
            return events

    def chat_events(self, messages: Any = HI, **fields: Any) -> Events:
        return self.events(CHAT, {"messages": messages, **fields})

    def complete_events(self, prompt: Any = "x", **fields: Any) -> Events:
        return self.events(COMPLETIONS, {"prompt": prompt, **fields})

    def canary(self) -> None:
        reply = self.complete("x", max_tokens=1)
        assert reply.status == 200, reply.body

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def exchange(self, data: bytes) -> bytes:
        """Send raw bytes; all that comes until the server closes."""
        with self.connect() as raw:
            raw.sendall(data)
            return read_to_end(raw)


def read_to_end(raw: socket.socket) -> bytes:
    received = b""
    while part := raw.recv(65536):
        received += part
    return received


def post_bytes(body: Any, path: str = CHAT, version: str = "HTTP/1.1", head: str = "Connection: close\r\n") -> bytes:
    """A POST as it looks on the wire; `head` are further header lines."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = (
        f"{path} {version}\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{head}\r\n"
    )
    return b"POST " + lines.encode() + data


def _spelled(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _lower(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


class Server(Client):
    """A daemon with its own event loop in a thread. `daemon` may be looked at; it belongs to that loop."""

    def __init__(self, folder: Path, config: dict[str, Any], wait: bool) -> None:
        config = {"port": 0, "max_batch": 8, "log_level": "warning", "model": str(folder), **config}
        self.config = Config(**config)
        self._folder, self._ready, self._fault = folder, threading.Event(), None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main(wait)))
        self._thread.start()
        assert self._ready.wait(60)
        if self._fault is not None:
            raise self._fault
        key = self.config.api_key
        super().__init__(self._listener.getsockname()[1], {"Authorization": f"Bearer {key[0]}"} if key else None)

    async def _main(self, wait: bool) -> None:
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        with ThreadPoolExecutor(2) as pool, bind("127.0.0.1", 0) as self._listener:
            self.daemon = Daemon(self.config, read_keys(self.config), pool)
            runner, accepting, server = await open_http(self.daemon, self._listener, read_tls(self.config))
            loading = asyncio.create_task(load_model(self.daemon, lambda reference: self._folder))
            try:
                if wait:
                    await loading
            except Exception as fault:
                self._fault = fault
            self._ready.set()
            if self._fault is None:
                await self._stop.wait()
                await loading
            await drain(self.daemon, server, 0.0)
            accepting.close()
            await runner.cleanup()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def call(self, function: Any, *arguments: Any) -> None:
        """Run something on the daemon's loop, and wait for it."""
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (function(*arguments), done.set()))
        assert done.wait(PATIENCE)


@contextmanager
def serving(folder: Path, wait: bool = True, **config: Any) -> Iterator[Server]:
    """wait: until the model is loaded."""
    server = Server(folder, config, wait)
    try:
        yield server
    finally:
        server.stop()
