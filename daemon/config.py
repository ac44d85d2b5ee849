"""Every setting of the daemon: one frozen value whose fields carry their own help, type and bounds.

Flags, `SOLOIST_*` variables and the configuration file are read off these fields (see `sources`).
"""

import ipaddress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .kinds import Kind, choice, count, integer, named, one_of, path, seconds, size, switch, text, texts

NO_NAMES = ("", "default")
"""What a request may call the served model besides its names."""


class ConfigError(Exception):
    """A setting is wrong. The message names the setting and where its value came from."""


def _setting(default: Any, kind: Kind, help: str, metavar: str | None = None, secret: bool = False) -> Any:
    metadata = {"kind": kind, "help": help, "metavar": metavar, "secret": secret}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Config:
    """Times are in seconds, sizes in bytes, lengths in tokens."""

    model: str = _setting("demo", text, "model folder, Hugging Face id, .gguf file, or alias", "MODEL")
    served_model_name: tuple[str, ...] = _setting(
        (), texts, "name under which the model is served; the first is what answers carry (repeatable)", "NAME"
    )
    adapter: tuple[str, ...] = _setting(
        (), named, "LoRA adapter to serve beside the model: a folder or Hugging Face id (repeatable)", "NAME=PATH"
    )
    merge_adapter: str | None = _setting(
        None, text, "LoRA adapter to merge into the model's weights: a folder or Hugging Face id", "PATH"
    )
    host: str = _setting("127.0.0.1", text, "address to listen on; anything but loopback needs an API key")
    port: int = _setting(3301, integer(0, 65535), "port to listen on; 0 picks a free one")
    unix_socket: Path | None = _setting(  # noqa: RUF009
        None, path, "Unix socket to listen on instead, for the same user only", "PATH"
    )
    tls_cert: Path | None = _setting(None, path, "certificate chain in PEM form, to speak HTTPS", "FILE")  # noqa: RUF009
    tls_key: Path | None = _setting(None, path, "its key in PEM form, unencrypted", "FILE")  # noqa: RUF009
    max_context: int | None = _setting(None, count, "longest prompt plus answer, if shorter than the model's", "TOKENS")
    max_batch: int = _setting(8, count, "choices that are generated at the same time", "ROWS")
    max_queue: int = _setting(64, count, "requests that may wait; one more is answered 503", "REQUESTS")
    prefill_chunk: int = _setting(2048, count, "most prompt tokens that are read at once", "TOKENS")
    kv_bits: int | None = _setting(
        None, one_of(4, 8), "keep keys and values in so many bits; one choice is then generated at a time", "BITS"
    )
    prefix_cache_bytes: int = _setting(
        2 * 1024**3, size(0), "memory for the states of prompts that may come again; 0 keeps none", "SIZE"
    )
    cache_dir: Path | None = _setting(  # noqa: RUF009
        None, path, "folder in which these states outlive a restart", "DIR"
    )
    cache_dir_bytes: int = _setting(8 * 1024**3, size(0), "most that may lie in --cache-dir", "SIZE")
    memory_limit: int | None = _setting(
        None, size(1), "memory for weights and running requests; default 90 % of the device's", "SIZE"
    )
    api_key: tuple[str, ...] = _setting(
        (), texts, "key that clients must send as a bearer token, as KEY or NAME:KEY (repeatable)", "KEY", True
    )
    api_key_file: Path | None = _setting(  # noqa: RUF009
        None, path, "file with one key a line, as KEY or NAME:KEY", "FILE"
    )
    admin_key_file: Path | None = _setting(  # noqa: RUF009
        None, path, "file with the keys that may change adapters and drain; without one, this machine may", "FILE"
    )
    log_level: str = _setting("info", choice("debug", "info", "warning", "error"), "how much is logged")
    log_format: str = _setting(
        "auto", choice("auto", "text", "json"), "how: auto is text on a terminal and JSON lines elsewhere"
    )
    log_prompts: bool = _setting(False, switch, "log the bodies of requests, which hold what people write")
    sampling_defaults: str = _setting(
        "openai",
        choice("openai", "model"),
        "defaults of omitted sampling fields: the API's, or generation_config.json's",
    )
    chat_template: Path | None = _setting(  # noqa: RUF009
        None, path, "Jinja file to use instead of the model's chat template", "FILE"
    )
    tool_parser: str | None = _setting(
        None, text, "how the model writes tool calls, if its chat template does not tell", "NAME"
    )
    max_body_bytes: int = _setting(64 * 1024**2, size(1), "largest request body; suffixes KiB, MiB, GiB", "SIZE")
    stall_after: float = _setting(60.0, seconds(0.1), "a step older than this while work is due: not ready", "SECONDS")
    shutdown_grace: float = _setting(5.0, seconds(0), "how long running requests may finish after SIGTERM", "SECONDS")
    request_timeout: float | None = _setting(None, seconds(0.001), "deadline of each request; default none", "SECONDS")
    keepalive_every: float = _setting(5.0, seconds(0.01), "pause between keep-alive comments of a stream", "SECONDS")
    cors_origin: tuple[str, ...] = _setting(
        ("*",), texts, "web origin that may read answers; * is any, none is closed (repeatable)", "ORIGIN"
    )
    allowed_host: tuple[str, ...] = _setting(
        (), texts, "further Host name to answer to, as a guard against DNS rebinding; * is any (repeatable)", "NAME"
    )
    exit_on_hang: bool = _setting(
        False, switch, "end the process when the executor hangs, for its supervisor to restart"
    )
    trust_remote_code: bool = _setting(False, switch, "run Python code that comes with a model")

    def __post_init__(self) -> None:
        for check in (_guard_open_address, _guard_origins, _guard_names, _guard_tls):
            check(self)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.unix_socket is not None:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost" or self.host.endswith(".localhost")

    @property
    def adapters(self) -> tuple[tuple[str, str], ...]:
        """Name and reference of each adapter to be served."""
        return tuple((name, reference) for name, _, reference in (pair.partition("=") for pair in self.adapter))

    @property
    def keys_required(self) -> bool:
        return bool(self.api_key or self.api_key_file)


def _guard_open_address(config: Config) -> None:
    if not config.loopback and not config.keys_required:
        raise ConfigError(
            f"host {config.host!r} can be reached from other machines: set api_key or api_key_file, "
            "or listen on 127.0.0.1"
        )


def _guard_tls(config: Config) -> None:
    if (config.tls_cert is None) != (config.tls_key is None):
        missing = "tls_key" if config.tls_key is None else "tls_cert"
        raise ConfigError(f"{missing} is not set: HTTPS needs both tls_cert and tls_key")
    if config.tls_cert is not None and config.unix_socket is not None:
        raise ConfigError("tls_cert cannot be combined with unix_socket, which never leaves this machine")


def _guard_origins(config: Config) -> None:
    for origin in config.cors_origin:
        if origin not in ("*", "none") and "://" not in origin:
            raise ConfigError(f"cors_origin {origin!r} is not an origin such as https://app.example, nor * or none")
        if origin in ("*", "none") and len(config.cors_origin) > 1:
            raise ConfigError(f"cors_origin {origin!r} cannot be combined with other origins")


def _guard_names(config: Config) -> None:
    names = [name for name, _ in config.adapters]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"adapter {name!r} is given twice: adapters need names of their own")
        if name in (*config.served_model_name, config.model, *NO_NAMES):
            raise ConfigError(f"adapter {name!r} has a name that means the model itself")


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of `Config` as the sources see it."""

    name: str
    kind: Kind
    help: str
    metavar: str | None
    secret: bool
    default: Any

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "SOLOIST_" + self.name.upper()


def _settings() -> tuple[Setting, ...]:
    return tuple(Setting(name=f.name, default=f.default, **f.metadata) for f in fields(Config))


SETTINGS = _settings()
