"""What the doctor says of files and addresses: can we write and listen where we must, and can nobody else read keys."""

import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..daemon.address import AddressError, listening, read_tls
from ..daemon.config import Config, ConfigError
from ..daemon.keys import read_admin_keys, read_keys
from .cache_folder import cache_dir, ensured
from .doctor_finding import Finding
from .model_errors import ModelError

OTHERS = stat.S_IRWXG | stat.S_IRWXO
LITTLE = 1_000_000_000


def cache(config: Config) -> Finding:
    """The folder of models, and that of prompt states where one is configured."""
    details = []
    for folder in (cache_dir(), *([config.cache_dir] if config.cache_dir else ())):
        try:
            with tempfile.TemporaryFile(dir=ensured(folder)):
                pass
        except (OSError, ModelError) as error:
            remedy = f"choose a folder that you can write: {_named(folder)}"
            return Finding("cache", "fail", f"{folder}: {error}", remedy)
        mode = folder.stat().st_mode
        free = shutil.disk_usage(folder).free
        details.append(f"{folder}, {free / 1e9:.1f} GB free")
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return Finding("cache", "slow", f"{folder}: everybody may write there", f"chmod go-w {folder}")
        if free < LITTLE:
            return Finding("cache", "slow", details[-1], f"free some space, or choose another folder: {_named(folder)}")
    return Finding("cache", "ok", "; ".join(details))


def _named(folder: Path) -> str:
    return "SOLOIST_MODELS_DIR" if folder == cache_dir() else "--cache-dir"


def keys(config: Config) -> Finding:
    """Key files and certificates: readable, well-formed, and closed to other users."""
    secrets = [file for file in (config.api_key_file, config.admin_key_file, config.tls_key) if file is not None]
    readers: tuple[Callable[[Config], object], ...] = (read_keys, read_admin_keys, read_tls)
    try:
        for read in readers:
            read(config)
    except ConfigError as error:
        return Finding("keys", "fail", str(error), "correct the file, or the setting that names it")
    for file in secrets:
        if file.stat().st_mode & OTHERS:
            return Finding("keys", "slow", f"{file}: other users may read it", f"chmod 600 {file}")
    if not secrets:
        return Finding("keys", "ok", "no key files; " + _access(config))
    return Finding("keys", "ok", f"{', '.join(map(str, secrets))}: for this user only; {_access(config)}")


def _access(config: Config) -> str:
    return "API key required" if config.keys_required else "no API key, this machine only"


def port(config: Config) -> Finding:
    """Whether `serve` could listen. The address is taken for a moment and given back."""
    wanted = str(config.unix_socket) if config.unix_socket else f"{config.host}:{config.port}"
    try:
        with listening(config):
            pass
    except AddressError as error:
        return Finding("port", "fail", str(error), "stop what listens there (a running soloist?), or choose another")
    return Finding("port", "ok", f"{wanted} is free")
