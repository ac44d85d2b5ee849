"""How log lines look: key=value on a terminal, one JSON object a line where a machine reads them.

A line has a short message and fields: `log.info("request", extra={"fields": {...}})`. Fields that are None are left
out. An exception whose text may quote what a client sent is logged with `extra={"private": True}`: its traceback is
shown without that text, unless prompts may be logged.
"""

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from .config import Config


def set_up(config: Config, stream: TextIO | None = None) -> None:
    """Send everything that is logged in this process to `stream`, standard error if None, in one form."""
    target = sys.stderr if stream is None else stream
    as_json = config.log_format == "json" or (config.log_format == "auto" and not target.isatty())
    handler = logging.StreamHandler(target)
    handler.setFormatter((JsonLines if as_json else Text)(config.log_prompts))
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler], force=True)


class _Lines(logging.Formatter):
    def __init__(self, private: bool) -> None:
        """private: whether the texts of private exceptions are shown."""
        super().__init__()
        self._private = private

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        return {name: value for name, value in fields.items() if value is not None}

    def _trace(self, record: logging.LogRecord) -> str | None:
        if not record.exc_info or record.exc_info[0] is None:
            return None
        kind, error, frames = record.exc_info
        if not self._private and getattr(record, "private", False):
            return "".join(traceback.format_tb(frames)) + f"{kind.__name__}: (its text is private)"
        return "".join(traceback.format_exception(kind, error, frames)).rstrip()


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JsonLines(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._fields(record),
        }
        if (trace := self._trace(record)) is not None:
            line["exception"] = trace
        return json.dumps(line, default=str)


class Text(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        parts = [_time(record), record.levelname, *record.getMessage().splitlines()]
        parts += [f"{name}={_value(value)}" for name, value in self._fields(record).items()]
        trace = self._trace(record)
        return " ".join(parts) + ("" if trace is None else "\n" + trace)


def _value(value: Any) -> str:
    """Bare where that cannot be misread, else as a JSON string, so that no client can write a line of its own."""
    if isinstance(value, bool):
        return str(value).lower()
    shown = str(value)
    plain = shown.isascii() and shown.isprintable() and shown and not any(sign in shown for sign in ' "=')
    return shown if plain else json.dumps(shown)
