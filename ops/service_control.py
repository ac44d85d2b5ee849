"""Installing, removing and asking after a service through launchctl or systemctl. Every act may be repeated."""

import os
import subprocess
from pathlib import Path
from typing import Protocol

from .service_plist import label, render_plist
from .service_spec import Service, ServiceError
from .service_unit import render_unit, unit_name

ACT_WITHIN_S = 60


class Supervisor(Protocol):
    """What `soloist service` asks of launchd and of systemd."""

    def file(self, name: str) -> Path: ...
    def text(self, service: Service) -> str: ...
    def install(self, service: Service) -> None: ...
    def uninstall(self, name: str) -> None: ...
    def status(self, name: str) -> tuple[bool, str]:
        """Whether it runs, and what the supervisor says of it."""
        ...


class Launchd:
    """A user's own agents, in the login session's domain."""

    def __init__(self) -> None:
        self._domain = f"gui/{os.getuid()}"

    def file(self, name: str) -> Path:
        return Path.home() / "Library" / "LaunchAgents" / f"{label(name)}.plist"

    def text(self, service: Service) -> str:
        return render_plist(service).decode()

    def install(self, service: Service) -> None:
        """A job that is loaded is taken out first: launchd reads a changed file only then."""
        service.log.parent.mkdir(parents=True, exist_ok=True)
        file = self.file(service.name)
        if write_if_changed(file, self.text(service)) or not self.status(service.name)[0]:
            _call(["launchctl", "bootout", f"{self._domain}/{label(service.name)}"], may_fail=True)
            _call(["launchctl", "enable", f"{self._domain}/{label(service.name)}"])
            _call(["launchctl", "bootstrap", self._domain, str(file)])

    def uninstall(self, name: str) -> None:
        _call(["launchctl", "bootout", f"{self._domain}/{label(name)}"], may_fail=True)
        self.file(name).unlink(missing_ok=True)

    def status(self, name: str) -> tuple[bool, str]:
        done = _call(["launchctl", "print", f"{self._domain}/{label(name)}"], may_fail=True)
        return done.returncode == 0 and "state = running" in done.stdout, done.stdout or done.stderr


class Systemd:
    """run_as: the account of a system unit; None: a unit of the user's own manager."""

    def __init__(self, run_as: str | None, notifies: bool) -> None:
        self._run_as = run_as
        self._notifies = notifies
        self._systemctl = ["systemctl"] if run_as else ["systemctl", "--user"]

    def file(self, name: str) -> Path:
        own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        return (Path("/etc/systemd/system") if self._run_as else own / "systemd" / "user") / unit_name(name)

    def text(self, service: Service) -> str:
        return render_unit(service, run_as=self._run_as, notifies=self._notifies)

    def install(self, service: Service) -> None:
        changed = write_if_changed(self.file(service.name), self.text(service))
        self._do("daemon-reload")
        self._do("enable", unit_name(service.name))
        self._do("restart" if changed else "start", "--no-block", unit_name(service.name))

    def uninstall(self, name: str) -> None:
        if self.file(name).exists():
            self._do("disable", "--now", unit_name(name))
            self.file(name).unlink()
            self._do("daemon-reload")

    def status(self, name: str) -> tuple[bool, str]:
        done = _call([*self._systemctl, "status", "--no-pager", unit_name(name)], may_fail=True)
        return done.returncode == 0, done.stdout or done.stderr

    def _do(self, *words: str) -> None:
        _call([*self._systemctl, *words])


def write_if_changed(file: Path, text: str) -> bool:
    """Returns whether the file is new or other than before. Raises ServiceError."""
    try:
        if file.exists() and file.read_text() == text:
            return False
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name(f".{file.name}.new")
        fresh.write_text(text)
        fresh.chmod(0o600 if file.suffix == ".plist" else 0o644)
        fresh.replace(file)
    except OSError as error:
        raise ServiceError(f"cannot write {file}: {error.strerror}") from None
    return True


def _call(words: list[str], *, may_fail: bool = False) -> "subprocess.CompletedProcess[str]":
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=ACT_WITHIN_S)
    except FileNotFoundError:
        raise ServiceError(f"{words[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise ServiceError(f"{' '.join(words)} did not end within {ACT_WITHIN_S} s") from None
    if done.returncode and not may_fail:
        said = " ".join((done.stderr or done.stdout).split())
        raise ServiceError(f"{' '.join(words)} failed with {done.returncode}: {said}")
    return done
