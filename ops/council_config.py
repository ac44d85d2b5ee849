"""The council's file: which instances there are, what each serves, and how they stand behind one address."""

import ipaddress
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from zlib import crc32

from ..daemon.kinds import Kind, count, integer, seconds, size, switch, text, texts

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
MODEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@+-]{0,199}")
ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:]+\]|[A-Za-z0-9_.-]+|\*):(?P<port>\d{1,5})")
HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
TIERED = "council-tiered/"


class CouncilError(Exception):
    """The file is wrong, a route is not served, or HAProxy cannot run. One line for the operator."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One daemon. models: every name that it answers to, as given to `--served-model-name`."""

    name: str
    address: str
    models: tuple[str, ...]

    @property
    def id(self) -> int:
        """HAProxy's number for it, from its name alone: the hash ring stays put when others come and go."""
        return crc32(self.name.encode()) % 0x7FFFFFFE + 1


def _setting(default: Any, kind: Kind) -> Any:
    return field(default=default, metadata={"kind": kind})


@dataclass(frozen=True, slots=True)
class Council:
    """Times in seconds, sizes in bytes; docs/operations.md has a line for each. tiers: route -> models, best first."""

    instances: tuple[Instance, ...]
    tiers: Mapping[str, tuple[str, ...]]
    address: str = _setting("127.0.0.1:3300", text)
    default: str | None = _setting(None, text)
    largest_body: int = _setting(4 * 1024**2, size(1))
    max_connections: int = _setting(256, count)
    session_headers: tuple[str, ...] = _setting(("x-session-id",), texts)
    balance_factor: int = _setting(150, integer(101, 10_000))
    balance_floor: int = _setting(8, count)
    retries: int = _setting(4, integer(1, 20))
    connect_timeout: float = _setting(2.0, seconds(0.05))
    body_timeout: float = _setting(60.0, seconds(0.1))
    answer_timeout: float = _setting(1800.0, seconds(0.1))
    check_every: float = _setting(2.0, seconds(0.05))
    check_timeout: float = _setting(4.0, seconds(0.05))
    check_fall: int = _setting(3, count)
    check_rise: int = _setting(2, count)
    leave_within: float = _setting(30.0, seconds(0.1))
    metrics: str | None = _setting(None, text)
    guardian: str | None = _setting(None, text)
    keys_at_instances: bool = _setting(False, switch)

    def __post_init__(self) -> None:
        for name in ("address", "metrics", "guardian"):
            value = getattr(self, name)
            if value is not None:
                _check_address(name, value)
        for header in self.session_headers:
            if not HEADER.fullmatch(header):
                raise CouncilError(f"session_headers: {header!r} is no header name")
        if not _loopback(self.address) and not self.keys_at_instances:
            raise CouncilError(
                f"address {self.address!r} can be reached from other machines: give every instance an API key "
                "and say so with keys_at_instances = true, or listen on 127.0.0.1"
            )


SETTINGS = {f.name: f.metadata["kind"] for f in fields(Council) if "kind" in f.metadata}


def read_council(file: Path) -> Council:
    """Raises CouncilError, naming what is wrong and where."""
    try:
        stored = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CouncilError(f"{file}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CouncilError(f"{file} is not valid TOML: {error}") from None
    instances = _table(stored, "instances")
    tiers = _table(stored, "tiers")
    values = {name: _read(name, value) for name, value in stored.items()}
    return Council(_read_instances(instances), {name: _read_tier(name, v) for name, v in tiers.items()}, **values)


def _table(stored: dict[str, Any], name: str) -> dict[str, Any]:
    table = stored.pop(name, {})
    if not isinstance(table, dict):
        raise CouncilError(f"{name} must be a table")
    return table


def _read(name: str, value: Any) -> Any:
    if name not in SETTINGS:
        raise CouncilError(f"unknown setting {name!r}; there are instances, tiers, {', '.join(SETTINGS)}")
    try:
        return SETTINGS[name].read(value)
    except ValueError as error:
        raise CouncilError(f"{name} is {value!r}, but must be {error}") from None


def _read_instances(table: dict[str, Any]) -> tuple[Instance, ...]:
    if not table:
        raise CouncilError("there are no instances; add [instances.NAME] with address and models")
    instances = tuple(_read_instance(name, entry) for name, entry in table.items())
    if len({instance.id for instance in instances}) < len(instances):
        raise CouncilError("two instance names have the same number for HAProxy; rename one")
    return instances


def _read_instance(name: str, entry: Any) -> Instance:
    where = f"instances.{name}"
    if not NAME.fullmatch(name):
        raise CouncilError(f"{where}: a name is made of letters, digits, '_', '-' and '.'")
    if not isinstance(entry, dict) or set(entry) != {"address", "models"}:
        raise CouncilError(f'{where} must have exactly address = "HOST:PORT" and models = ["NAME", ...]')
    _check_address(where, entry["address"])
    return Instance(name, entry["address"], _read_models(where, entry["models"]))


def _read_tier(name: str, models: Any) -> tuple[str, ...]:
    if not MODEL.fullmatch(name):
        raise CouncilError(f"tiers.{name}: {MODEL.pattern} is what a name may be")
    return _read_models(f"tiers.{name}", models)


def _read_models(where: str, models: Any) -> tuple[str, ...]:
    if not isinstance(models, list) or not models:
        raise CouncilError(f"{where}: models must be a list of names")
    for model in models:
        if not isinstance(model, str) or not MODEL.fullmatch(model):
            raise CouncilError(f"{where}: {model!r} cannot be routed; a name must match {MODEL.pattern}")
    return tuple(dict.fromkeys(models))


def _check_address(where: str, value: Any) -> None:
    match = ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if not match or not 0 < int(match["port"]) < 65536:
        raise CouncilError(f"{where}: {value!r} is no HOST:PORT")


def _loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
