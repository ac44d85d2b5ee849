"""Where settings come from: flag over environment over configuration file over default; and how they are printed."""

import argparse
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from .config import SETTINGS, Config, ConfigError, Setting
from .kinds import spell_size

MASK = "********"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """One flag for each field of `Config`, and the two that are about configuration itself."""
    for setting in SETTINGS:
        options: dict[str, Any] = {"dest": setting.name, "default": None, "help": _help(setting)}
        if setting.kind.name == "switch":
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["metavar"] = setting.metavar or setting.name.rsplit("_", 1)[-1].upper()
            if setting.kind.choices:
                options["metavar"] = "{" + ",".join(setting.kind.choices) + "}"
            if setting.kind.many:
                options["action"] = "append"
        parser.add_argument(setting.flag, **options)
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML file with these settings (SOLOIST_CONFIG)")
    parser.add_argument("--print-config", action="store_true", help="print the settings in force as TOML, and end")


def _help(setting: Setting) -> str:
    if setting.default in (None, (), False):
        return setting.help.replace("%", "%%")
    shown = ", ".join(setting.default) if setting.kind.many else setting.default
    if setting.kind.name == "size":
        shown = spell_size(setting.default)
    return f"{setting.help} (default: {shown})".replace("%", "%%")


def read_config(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Config:
    """Raises ConfigError, naming the setting and the source of its value."""
    file = arguments.config or (Path(environment["SOLOIST_CONFIG"]) if environment.get("SOLOIST_CONFIG") else None)
    stored = _read_file(file.expanduser()) if file else {}
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        flag = getattr(arguments, setting.name)
        if flag is not None:
            values[setting.name] = _read(setting, flag, f"flag {setting.flag}")
        elif environment.get(setting.variable):
            values[setting.name] = _read(setting, environment[setting.variable], f"environment {setting.variable}")
        elif setting.name in stored:
            values[setting.name] = _read(setting, stored[setting.name], f"file {file}")
    return Config(**values)


def _read(setting: Setting, value: Any, source: str) -> Any:
    try:
        return setting.kind.read(value)
    except ValueError as error:
        shown = MASK if setting.secret else repr(value)
        raise ConfigError(f"{setting.name} is {shown} in {source}, but must be {error}") from None


def _read_file(file: Path) -> dict[str, Any]:
    try:
        stored = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"configuration file {file}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {file} is not valid TOML: {error}") from None
    known = {setting.name for setting in SETTINGS}
    spelled = {key.replace("-", "_"): value for key, value in stored.items()}
    for key in spelled:
        if key not in known:
            raise ConfigError(f"unknown setting {key!r} in file {file}")
    return spelled


def to_toml(config: Config) -> str:
    """The settings in force as a TOML document; those that are off are comments, secrets are masked."""
    lines = []
    for setting in SETTINGS:
        value = getattr(config, setting.name)
        if value is None:
            lines.append(f"# {setting.name} is not set")
        else:
            lines.append(f"{setting.name} = {_toml(setting, value)}")
    return "\n".join(lines) + "\n"


def _toml(setting: Setting, value: Any) -> str:
    if setting.kind.many:
        return "[" + ", ".join(_toml_text(MASK if setting.secret else item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return _toml_text(MASK if setting.secret else str(value))


def _toml_text(value: str) -> str:
    # A JSON string is a TOML basic string, but for DEL.
    return orjson.dumps(value).decode().replace("\x7f", "\\u007f")
