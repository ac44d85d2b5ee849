"""The types of settings: how each is read from a string (flag, environment) or a TOML value, and what it refuses."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = re.compile(r"[A-Za-z0-9][\w.:/-]{0,127}", re.ASCII)
"""What a model or adapter may be called in a request and in a path."""


@dataclass(frozen=True, slots=True)
class Kind:
    """read: a string or TOML value to the field's value; raises ValueError with what would have been right.

    many: the flag may be repeated, and an environment variable holds a comma-separated list.
    """

    name: str
    read: Callable[[Any], Any]
    many: bool = False
    choices: tuple[str, ...] = ()


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a non-empty string")
    return value


def _read_texts(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item.strip() for item in items):
        raise ValueError("a list of non-empty strings")
    return tuple(item.strip() for item in items)


def _read_named(value: Any) -> tuple[str, ...]:
    pairs = _read_texts(value)
    for pair in pairs:
        name, _, rest = pair.partition("=")
        if not NAME.fullmatch(name) or not rest:
            raise ValueError(
                "NAME=PATH, with a name of letters, digits and . _ : / - that begins with a letter or digit"
            )
    return pairs


def _read_path(value: Any) -> Path:
    return Path(_read_text(value)).expanduser()


def _read_switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError("true or false")


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError
    return int(value)


def integer(low: int, high: int | None = None) -> Kind:
    """A whole number within bounds."""
    wanted = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"

    def read(value: Any) -> int:
        try:
            number = _whole(value)
        except ValueError:
            raise ValueError(wanted) from None
        if number < low or (high is not None and number > high):
            raise ValueError(wanted)
        return number

    return Kind("integer", read)


def one_of(*numbers: int) -> Kind:
    """One of a few whole numbers."""

    def read(value: Any) -> int:
        try:
            number = _whole(value)
        except ValueError:
            number = min(numbers) - 1
        if number not in numbers:
            raise ValueError(" or ".join(map(str, numbers)))
        return number

    return Kind("integer", read)


def seconds(low: float) -> Kind:
    """A finite number of seconds, at least `low`."""

    def read(value: Any) -> float:
        try:
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise ValueError
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number < low:
            raise ValueError(f"a number of seconds, at least {low:g}")
        return number

    return Kind("seconds", read)


_UNITS = {"": 1, "B": 1, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def size(low: int) -> Kind:
    """A number of bytes."""

    def read(value: Any) -> int:
        match = re.fullmatch(r"(\d+)\s*([a-z]*)", str(value).strip(), re.IGNORECASE)
        factor = _UNITS.get(match[2].upper()) if match and not isinstance(value, bool) else None
        if match is None or factor is None or int(match[1]) * factor < low:
            raise ValueError(f"a number of bytes of at least {low}, such as 1048576, 64MiB or 500MB")
        return int(match[1]) * factor

    return Kind("size", read)


def spell_size(count: int) -> str:
    """The largest unit that says it exactly."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if count and count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)


def choice(*names: str) -> Kind:
    """One of a few words."""

    def read(value: Any) -> str:
        if value not in names:
            raise ValueError("one of " + ", ".join(names))
        return str(value)

    return Kind("choice", read, choices=names)


text = Kind("text", _read_text)
texts = Kind("texts", _read_texts, many=True)
named = Kind("named", _read_named, many=True)
path = Kind("path", _read_path)
switch = Kind("switch", _read_switch)
count = integer(1)
