"""The servers that are compared: started here with the same BLAS, or attached by their base URL. No MLX here."""

import importlib.metadata
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..daemon.config import SETTINGS
from .bench_child import PACKAGE

START_WITHIN_S = 300.0
STOP_WITHIN_S = 15.0
# mlx_lm.server in a process whose BLAS is ours, so that the servers differ and the arithmetic does not.
MLX_LM = (
    f"import sys; from {PACKAGE}.executor.blas import load_blas; load_blas(); "
    "from mlx_lm.server import main; sys.argv[0] = 'mlx_lm.server'; main()"
)


class ServerFault(Exception):
    """A server did not start, or does not answer; one line for the user."""


@dataclass(slots=True)
class Server:
    """name: as ratios call it. command: how to start it again; None is one that somebody else runs.

    ready_path: answers JSON with a 200 once the server is up.
    """

    name: str
    base_url: str
    model: str | None = None
    command: tuple[str, ...] | None = None
    key: str | None = None
    ready_path: str = "/v1/models"
    process: "subprocess.Popen[bytes] | None" = None
    log: IO[bytes] | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    def start(self) -> float:
        """Start and wait until it answers. Returns the seconds. Raises ServerFault."""
        assert self.command is not None
        began = time.monotonic()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the server runs
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        while time.monotonic() - began < START_WITHIN_S:
            if self.process.poll() is not None:
                code, words = self.process.returncode, self.last_words()
                self.stop()
                raise ServerFault(f"{self.name} ended with code {code}: {words}")
            if self._answers():
                return time.monotonic() - began
            time.sleep(0.05)
        self.stop()
        raise ServerFault(f"{self.name} did not answer within {START_WITHIN_S:g} s")

    def _answers(self) -> bool:
        try:
            self.get(self.ready_path)
        except ServerFault:
            return False
        return True

    def stop(self) -> None:
        """Ends a server that was started here; harmless for any other."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
        if self.log is not None:
            self.log.close()
            self.log = None

    def get(self, path: str) -> Any:
        """The JSON document at a path. Raises ServerFault."""
        try:
            return json.loads(self.text(path))
        except ValueError as error:
            raise ServerFault(f"{self.name} at {self.base_url}{path}: {error}") from None

    def text(self, path: str) -> str:
        """Raises ServerFault unless the answer is a 200."""
        request = urllib.request.Request(self.base_url + path, headers=self.headers)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as response:
                told: bytes = response.read()
                return told.decode(errors="replace")
        except OSError as error:  # urllib's own errors are among them
            raise ServerFault(f"{self.name} at {self.base_url}{path}: {error}") from None

    def last_words(self) -> str:
        if self.log is None:
            return ""
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def document(self) -> dict[str, Any]:
        """What the JSON says of it. `health` is there for servers that have such a document."""
        try:
            health = self.get("/health")
        except ServerFault:
            health = None
        return {
            "base_url": self.base_url,
            "model": self.model,
            "pid": self.pid,
            "command": list(self.command) if self.command else None,
            "health": health,
        }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def soloist(folder: Path, rows: int, arguments: Sequence[str] = ()) -> Server:
    """Our own daemon. rows: streams that it shall serve at once."""
    port = free_port()
    command = (
        sys.executable, "-m", PACKAGE, "serve", "--model", str(folder), "--port", str(port),
        "--max-batch", str(rows), "--log-level", "warning", *arguments,
    )  # fmt: skip
    return Server("soloist", f"http://127.0.0.1:{port}", command=command)


def mlx_lm(folder: Path) -> Server:
    """mlx-lm's server as it is shipped, on our BLAS."""
    port = free_port()
    command = (
        sys.executable, "-c", MLX_LM, "--model", str(folder), "--port", str(port), "--log-level", "WARNING",
    )  # fmt: skip
    # Its /v1/models answers 200 with nothing on a machine without a Hugging Face cache.
    address = f"http://127.0.0.1:{port}"
    return Server("mlx-lm", address, model="default_model", command=command, ready_path="/health")


def attached(spec: str, key: str | None, model: str | None) -> Server:
    """From `NAME=URL` or `URL`. Raises ServerFault when it does not answer, or serves no model that can be named."""
    name, separator, url = spec.partition("=")
    if not separator or "://" in name:
        name, url = "attached", spec
    server = Server(name, url.rstrip("/").removesuffix("/v1"), key=key, model=model)
    if model is None:
        cards = server.get("/v1/models").get("data") or []
        if not cards:
            raise ServerFault(f"{name} lists no model; name one with --attach-model")
        server.model = str(cards[0]["id"])
    return server


def takes(flag: str) -> bool:
    """Whether our daemon knows a flag."""
    return any(setting.flag == flag for setting in SETTINGS)


def versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in (PACKAGE, "mlx", "mlx-lm", "aiohttp", "numpy", "tokenizers"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
