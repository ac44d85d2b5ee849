"""What a guardian watches and how strict it is: flags over TOML file over defaults, read off one frozen value."""

import argparse
import re
import shlex
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..daemon.kinds import Kind, count, path, seconds, switch, text, texts

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9_.-]+):(\d{1,5})")


class GuardianError(Exception):
    """A setting is wrong; one line for the operator."""


@dataclass(frozen=True, slots=True)
class Watched:
    """One instance: a name for logs and commands, and the URL of its root."""

    name: str
    url: str


def _setting(default: Any, kind: Kind, help: str, metavar: str | None = None) -> Any:
    return field(default=default, metadata={"kind": kind, "help": help, "metavar": metavar})


@dataclass(frozen=True, slots=True)
class GuardianConfig:
    """Times are in seconds."""

    watch: tuple[str, ...] = _setting((), texts, "instance to watch, as URL or NAME=URL (repeatable)", "URL")
    api_key_file: Path | None = _setting(  # noqa: RUF009
        None, path, "file whose first line is the API key of the instances", "FILE"
    )
    every: float = _setting(15.0, seconds(0.05), "pause between two rounds")
    ready_within: float = _setting(5.0, seconds(0.05), "deadline of the ready and models probes")
    deep_every: float = _setting(60.0, seconds(0), "pause between two sampled tokens drawn while all is well")
    deep_within: float = _setting(20.0, seconds(0.05), "deadline of the probes that draw a token")
    stall_after: float = _setting(60.0, seconds(0.05), "a step older than this while work is due is a wedge")
    loading_limit: float = _setting(900.0, seconds(0.1), "loading for longer than this is a miss")
    misses: int = _setting(3, count, "misses in a row before something is done", "ROUNDS")
    command: str | None = _setting(
        None, text, "what to run then; {name}, {url}, {verdict} and {reason} are filled in", "COMMAND"
    )
    command_within: float = _setting(60.0, seconds(0.1), "deadline of the command")
    webhook: str | None = _setting(None, text, "URL that is sent a JSON document then, and each report", "URL")
    backoff: float = _setting(60.0, seconds(0), "pause after an action; doubles with each further one")
    backoff_cap: float = _setting(1800.0, seconds(0), "longest such pause")
    max_actions: int = _setting(6, count, "actions for one instance within --actions-within; then only reports", "N")
    actions_within: float = _setting(6 * 3600.0, seconds(1), "the window in which actions are counted")
    calm: float = _setting(600.0, seconds(0), "being well for so long starts the pauses from the beginning")
    patrol_log: Path | None = _setting(None, path, "file for one JSON line a visit; rotated at 16 MiB", "FILE")  # noqa: RUF009
    report_folder: Path | None = _setting(None, path, "folder for the reports", "FOLDER")  # noqa: RUF009
    report_at: tuple[str, ...] = _setting(("08:00", "20:00"), texts, "local time of a report (repeatable)", "HH:MM")
    listen: str | None = _setting(
        "127.0.0.1:3304", text, "address of the guardian's own /metrics and /health", "ADDRESS"
    )
    agent: str | None = _setting(None, text, "address at which it answers the council's agent checks", "ADDRESS")
    once: bool = _setting(False, switch, "one round, printed; exit code 1 if anything is amiss")

    def __post_init__(self) -> None:
        if not self.watch:
            raise GuardianError("there is nothing to watch: give --watch URL")
        names = [watched.name for watched in self.watched()]
        if len(set(names)) < len(names):
            raise GuardianError("two watched instances have the same name; write --watch NAME=URL")
        for clock in self.report_at:
            if not CLOCK.fullmatch(clock):
                raise GuardianError(f"report_at {clock!r} is no time such as 08:00")
        for name in ("listen", "agent"):
            if getattr(self, name) is not None and not ADDRESS.fullmatch(getattr(self, name)):
                raise GuardianError(f"{name} {getattr(self, name)!r} is no HOST:PORT")
        self.command_words()

    def watched(self) -> tuple[Watched, ...]:
        return tuple(_watched(entry) for entry in self.watch)

    def command_words(self) -> list[str]:
        """The command as a shell would split it; it is not given to a shell."""
        try:
            return shlex.split(self.command or "")
        except ValueError as error:
            raise GuardianError(f"command cannot be read: {error}") from None


def _watched(entry: str) -> Watched:
    name, equals, url = entry.partition("=")
    if not equals or "://" in name:
        name, url = "", entry
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise GuardianError(f"watch {entry!r} is neither URL nor NAME=URL")
    name = name or f"{parts.hostname}_{parts.port or parts.scheme}"
    if not NAME.fullmatch(name):
        raise GuardianError(f"watch {entry!r}: a name is made of letters, digits, '_', '-' and '.'")
    return Watched(name, f"{parts.scheme}://{parts.netloc}")


def add_flags(parser: argparse.ArgumentParser) -> None:
    for setting in fields(GuardianConfig):
        kind, metavar = setting.metadata["kind"], setting.metadata["metavar"]
        options: dict[str, Any] = {
            "dest": setting.name,
            "default": None,
            "help": _help(setting.metadata, setting.default),
        }
        if kind.name == "switch":
            options["action"] = argparse.BooleanOptionalAction
        else:
            options |= {"metavar": metavar or "SECONDS", "action": "append" if kind.many else "store"}
        parser.add_argument("--" + setting.name.replace("_", "-"), **options)
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML file with these settings")


def _help(metadata: Any, default: Any) -> str:
    if default in (None, (), False):
        return str(metadata["help"])
    return f"{metadata['help']} (default: {', '.join(default) if isinstance(default, tuple) else default})"


def read_config(arguments: argparse.Namespace) -> GuardianConfig:
    """Raises GuardianError, naming the setting."""
    stored = _read_file(arguments.config) if arguments.config else {}
    values: dict[str, Any] = {}
    for setting in fields(GuardianConfig):
        flag = getattr(arguments, setting.name)
        value = flag if flag is not None else stored.pop(setting.name, None)
        stored.pop(setting.name, None)
        if value is None:
            continue
        try:
            values[setting.name] = setting.metadata["kind"].read(value)
        except ValueError as error:
            raise GuardianError(f"{setting.name} is {value!r}, but must be {error}") from None
    if stored:
        raise GuardianError(f"unknown setting {next(iter(stored))!r} in {arguments.config}")
    return GuardianConfig(**values)


def _read_file(file: Path) -> dict[str, Any]:
    try:
        return {key.replace("-", "_"): value for key, value in tomllib.loads(file.read_text("utf-8")).items()}
    except OSError as error:
        raise GuardianError(f"{file}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GuardianError(f"{file} is not valid TOML: {error}") from None
