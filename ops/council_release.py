"""Requests that hang on a dead instance are let go: those without a first byte go elsewhere, streams are visibly cut.

An instance that is frozen keeps its connections open, and a request that is not streamed may rightly be silent. So
once an instance has been down for a while its sessions are shut, through HAProxy's control socket. The while is longer
than a connect may take: by then no request is still on its way to the instance, and HAProxy sends every one that waits
for its first byte to another. An instance that drains is not down, and keeps its requests.
"""

import csv
import logging
import socket
import time
from pathlib import Path

from .council_config import Council

log = logging.getLogger(__name__)
PATIENCE_S = 2.0


class Release:
    """Call `look` every `every` seconds."""

    def __init__(self, control: Path, council: Council) -> None:
        self._control = control
        self._after = council.connect_timeout + 2 * council.check_every
        self.every = min(1.0, council.check_every)
        self._down_since: dict[str, float] = {}

    def look(self) -> None:
        """Shut the sessions of every server that has been down for long enough."""
        now = time.monotonic()
        try:
            down = _down(self._ask("show stat -1 4 -1"))
            self._down_since = {server: self._down_since.get(server, now) for server in down}
            for server, since in self._down_since.items():
                if down[server] and now - since > self._after:
                    self._ask(f"shutdown sessions server {server}")
                    print(f"soloist: {down[server]} requests let go that hung on {server}", flush=True)
        except OSError as error:
            log.debug("HAProxy's control socket does not answer: %s", error)

    def _ask(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(PATIENCE_S)
            control.connect(str(self._control))
            control.sendall(command.encode() + b"\n")
            answer = b""
            while part := control.recv(65536):
                answer += part
        return answer.decode()


def _down(table: str) -> dict[str, int]:
    """Sessions of each server that is down, by backend/server."""
    rows = csv.DictReader(table.removeprefix("# ").splitlines())
    return {f"{row['pxname']}/{row['svname']}": int(row["scur"]) for row in rows if row["status"].startswith("DOWN")}
