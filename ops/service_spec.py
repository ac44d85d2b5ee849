"""What a supervisor runs: whole paths and an environment of its own, because launchd and systemd give it neither."""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..daemon import exit_codes
from .model_errors import CacheNotWritable, ModelDamaged, ModelNotFound, ModelUnsupported

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
# Starting again cannot help: the configuration or the model has to be changed first.
HOPELESS = tuple(
    sorted(
        {exit_codes.USAGE, exit_codes.CONFIGURATION, exit_codes.MODEL_FAILED, exit_codes.ADAPTER_REFUSED}
        | {e.exit_code for e in (CacheNotWritable, ModelDamaged, ModelNotFound, ModelUnsupported)}
    )
)
PASSED_ON = (
    "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT", "XDG_CACHE_HOME", "XDG_STATE_HOME", "SSL_CERT_FILE",
    "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "LANG",
    "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
SECRETS = ("SOLOIST_API_KEY", "SOLOIST_ADMIN_KEY", "HF_TOKEN")
MODELS = ("--model", "--draft-model", "--adapter")  # a path only where one exists: else a name
FILES = re.compile(r"--(config|chat-template|[a-z-]+-(file|folder|dir|log|cert|certificate|key))")
SYSTEM_PATH = ("/opt/homebrew/bin", "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")


class ServiceError(Exception):
    """The service cannot be described or controlled. One line for the operator."""


@dataclass(frozen=True, slots=True)
class Service:
    """words: the whole command. stop_within: seconds from SIGTERM to SIGKILL."""

    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    stop_within: int
    log: Path


def describe(
    name: str, words: Sequence[str], extra: Sequence[str], environment: Mapping[str, str], stop_within: int
) -> Service:
    """words: Soloist's own arguments. extra: `NAME=VALUE`, or `NAME` to pass a variable on. Raises ServiceError."""
    if not NAME.fullmatch(name):
        raise ServiceError(f"a service's name is made of letters, digits, '_' and '-', not {name!r}")
    if any("\n" in word or "\0" in word for word in words):
        raise ServiceError("an argument with a line break cannot be written into a service file")
    # The interpreter's own path, not what it links to: that is how a virtual environment is found.
    python = os.path.abspath(sys.executable)
    whole = (python, "-u", "-m", "soloist", *absolute(words))
    log = Path.home() / ("Library/Logs" if sys.platform == "darwin" else ".local/state") / "soloist" / f"{name}.log"
    return Service(name, whole, _environment(python, extra, environment), stop_within, log)


def _environment(python: str, extra: Sequence[str], current: Mapping[str, str]) -> dict[str, str]:
    kept = {name: current[name] for name in PASSED_ON if name in current}
    kept |= {name: value for name, value in current.items() if name.startswith("SOLOIST_") and name not in SECRETS}
    kept |= {
        "HOME": str(Path.home()),
        "PATH": ":".join((os.path.dirname(python), *SYSTEM_PATH)),
        "PYTHONUNBUFFERED": "1",
    }
    for entry in extra:
        name, equals, value = entry.partition("=")
        if not equals and name not in current:
            raise ServiceError(f"--env {name}: this variable is not set; write {name}=VALUE")
        kept[name] = value if equals else current[name]
    return dict(sorted(kept.items()))


def absolute(words: Sequence[str]) -> Iterator[str]:
    """Arguments as they mean the same from any folder: a service starts in `/`."""
    flag = ""
    for word in words:
        name, equals, value = word.partition("=")
        if word.startswith("--") and equals:
            yield f"{name}={_whole(name, value)}"
            flag = ""
        elif word.startswith("--"):
            yield word
            flag = word
        else:
            yield _whole(flag, word)
            flag = ""


def _whole(flag: str, value: str) -> str:
    if flag == "--adapter" and "=" in value:
        name, _, folder = value.partition("=")
        return f"{name}={_whole('--model', folder)}"
    path = Path(value).expanduser()
    if flag in MODELS:
        return str(path.absolute()) if value != "demo" and (path.exists() or value.startswith((".", "~"))) else value
    if FILES.fullmatch(flag) or (not flag and path.suffix == ".toml"):
        return str(path.absolute())
    return value
