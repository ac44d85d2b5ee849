"""API keys: read once at start, kept as digests, compared in constant time."""

import hashlib
import hmac
from pathlib import Path

from .config import Config, ConfigError


class Keys:
    """The keys that may call. With none, everyone may."""

    def __init__(self, keys: dict[str, str]) -> None:
        """keys: key to the name of its holder."""
        self._digests = [(_digest(key), name) for key, name in keys.items()]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def holder(self, key: str) -> str | None:
        """The name that belongs to a key, or None. Every key is compared, so that time tells nothing."""
        digest, found = _digest(key), None
        for known, name in self._digests:
            if hmac.compare_digest(digest, known):
                found = name
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def read_keys(config: Config) -> Keys:
    """Keys of the configuration and of its key file. Raises ConfigError."""
    keys = dict(_named(text, f"key-{number}") for number, text in enumerate(config.api_key, 1))
    if "" in keys:
        raise ConfigError("api_key holds a name without a key")
    if config.api_key_file is not None:
        keys |= _read_file("api_key_file", config.api_key_file)
    return Keys(keys)


def read_admin_keys(config: Config) -> Keys:
    """Keys of those who may change what is served. Raises ConfigError."""
    return Keys({} if config.admin_key_file is None else _read_file("admin_key_file", config.admin_key_file))


def _read_file(setting: str, file: Path) -> dict[str, str]:
    """Lines of KEY or NAME:KEY; empty lines and lines that begin with # are skipped."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{setting} {file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    keys = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, name = _named(text, f"line-{number}")
        keys[key] = name
    if "" in keys:
        raise ConfigError(f"{setting} {file} holds a name without a key")
    if not keys:
        raise ConfigError(f"{setting} {file} holds no key")
    return keys


def _named(text: str, otherwise: str) -> tuple[str, str]:
    """The key and the name of its holder, from KEY or NAME:KEY."""
    name, separator, key = text.partition(":")
    return (key.strip(), name.strip()) if separator else (text, otherwise)
