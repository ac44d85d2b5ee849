"""Running a council: files into its state folder, HAProxy's own opinion of them, and HAProxy until a signal comes.

SIGTERM or SIGINT: stop accepting, let running requests finish within `leave_within`; the second one: at once.
SIGHUP: read the council's file again; HAProxy takes the new configuration over without dropping a connection.
"""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import platformdirs

from .council_config import CouncilError, read_council
from .council_lua import script
from .council_release import Release
from .council_render import SCRIPT, SOCKET, render

LONGEST_SOCKET = 96  # sun_path of macOS holds 104 bytes; HAProxy binds under a longer temporary name first


def state_folder(file: Path) -> Path:
    """Where a council's rendered files lie unless told otherwise: one folder for each council file's name."""
    return Path(platformdirs.user_state_dir("soloist")) / "council" / file.stem


def write(file: Path, folder: Path) -> Path:
    """Render into `folder`. Returns the path of haproxy.cfg. Raises CouncilError."""
    folder = folder.absolute()
    if len(os.fsencode(folder / SOCKET)) > LONGEST_SOCKET:
        raise CouncilError(f"the folder's path is too long for a control socket: {folder}; choose another with --state")
    council = read_council(file)
    text = render(council, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / SCRIPT).write_text(script(council))
        fresh = folder / "haproxy.cfg.new"
        fresh.write_text(text)
        return fresh.replace(folder / "haproxy.cfg")
    except OSError as error:
        raise CouncilError(f"cannot write {folder}: {error.strerror}") from None


def find_haproxy() -> str:
    """Raises CouncilError with the remedy."""
    found = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin")
    if found is None:
        raise CouncilError("haproxy is not installed: apt-get install haproxy, or brew install haproxy")
    return found


def check(haproxy: str, configuration: Path) -> None:
    """Raises CouncilError with HAProxy's complaints."""
    done = subprocess.run([haproxy, "-c", "-q", "-f", str(configuration)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CouncilError(f"haproxy refuses {configuration}: {' '.join(done.stderr.split())}")


def up(file: Path, folder: Path) -> int:
    """Run HAProxy in the foreground until it ends; its exit code, or 0 after a wanted end. Raises CouncilError."""
    haproxy, configuration = find_haproxy(), write(file, folder)
    check(haproxy, configuration)
    # A master with a worker: the master takes a new configuration over while the old worker finishes its requests.
    process = subprocess.Popen([haproxy, "-W", "-f", str(configuration)], stdin=subprocess.DEVNULL)
    release = Release(configuration.parent / SOCKET, read_council(file))
    leaving = False

    def leave(number: int, frame: object) -> None:
        nonlocal leaving
        process.send_signal(signal.SIGTERM if leaving else signal.SIGUSR1)
        leaving = True

    def reload(number: int, frame: object) -> None:
        try:
            check(haproxy, write(file, folder))
            process.send_signal(signal.SIGUSR2)
        except CouncilError as error:
            print(f"soloist: the council stays as it was: {error}", file=sys.stderr, flush=True)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    signal.signal(signal.SIGHUP, reload)
    while True:
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(release.every)
            break
        release.look()
    return 0 if leaving else code
