"""What the operator sees of a start: that something is loading, and then one block with all that matters."""

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from .. import __version__
from ..executor.blas import Blas
from ..executor.health import Health
from .config import Config
from .served import Served

MIB = 1024**2


@contextmanager
def loading(model: str) -> Iterator[None]:
    """A spinner on a terminal, one line elsewhere."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(f"loading {model}"):
            yield
        return
    print(f"loading {model} ...", file=sys.stderr, flush=True)
    yield


def base_url(config: Config, port: int) -> str:
    if config.unix_socket is not None:
        return "http://localhost/v1"
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(config.host, config.host)
    scheme = "http" if config.tls_cert is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{port}/v1"


def start_block(config: Config, port: int, served: Served, health: Health, blas: Blas, remark: str | None) -> str:
    """URL, model, device, memory, BLAS, the executor's thread, and a line to paste into a shell."""
    facts, url = served.facts, base_url(config, port)
    kind = f"{facts.model_type}, {facts.dtype}{', quantised' if facts.quantized else ''}"
    rows = [
        ("URL", url if config.unix_socket is None else f"{url} over {config.unix_socket}"),
        ("model", f"{', '.join(served.names)} ({kind}, context {served.limits.context})"),
        ("device", f"{health.device}, weights {facts.weights_bytes / MIB:,.0f} MiB"),
        ("BLAS", blas.name if blas.remedy is None else f"{blas.name} - {blas.remedy}"),
        ("executor", f"thread {health.thread} ({health.thread_id}), {health.stream}, generation {health.generation}"),
        ("dice", f"{health.seed_state}"),
        ("access", "API key required" if config.keys_required else "no API key, this machine only"),
    ]
    rows += _adapter_rows(served)
    if remark:
        rows.append(("remark", remark))
    lines = [f"Soloist {__version__} is ready", *(f"  {name:<9} {value}" for name, value in rows), "  try it:"]
    return "\n".join([*lines, f"  {curl_line(url, config)}"])


def _adapter_rows(served: Served) -> list[tuple[str, str]]:
    """What changes the model's answers, and at which strength."""
    rows = []
    if merged := served.facts.merged:
        measured = (("median strength", merged.median_strength), ("worst", merged.worst_strength))
        figures = [f"{name} {value:.4f}" for name, value in measured if value is not None]
        rows.append(("merged", ", ".join([f"{merged.path}: {merged.summary}", *figures])))
    for name in served.adapters.names():
        facts = served.adapters.card(name, served.name)["adapter"]
        rows.append(("adapter", f"{name} (rank {facts['rank']}, scale {facts['scale']}): {facts['summary']}"))
    return rows


def curl_line(url: str, config: Config) -> str:
    body = json.dumps({"messages": [{"role": "user", "content": "Hello!"}]})
    key = ' -H "Authorization: Bearer $SOLOIST_KEY"' if config.keys_required else ""
    by = "" if config.unix_socket is None else f"--unix-socket {shlex.quote(str(config.unix_socket))} "
    return f"curl {by}{url}/chat/completions -H 'Content-Type: application/json'{key} -d '{body}'"
