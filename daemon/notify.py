"""What systemd is told (sd_notify(3)): ready, still alive, stopping. Fed by the executor's health, not by a timer.

Runs on the event loop. Without NOTIFY_SOCKET in the environment nothing happens.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from .health import read_health
from .state import Daemon

log = logging.getLogger(__name__)
ALIVE = ("loading", "ready", "draining")
LONGEST_PAUSE_S = 5.0
MORE_TIME_S = 60.0


@dataclass(frozen=True, slots=True)
class Supervisor:
    """The socket to write to, and within how many seconds it wants a sign of life (None: it does not watch)."""

    address: str
    watchdog_s: float | None

    @property
    def pause_s(self) -> float:
        """Three signs within the watchdog's time: one may be late, another lost."""
        return min(LONGEST_PAUSE_S, self.watchdog_s / 3) if self.watchdog_s else LONGEST_PAUSE_S

    def tell(self, **fields: str) -> None:
        """One datagram. A supervisor that does not listen is no reason to stop serving."""
        message = "\n".join(f"{name}={' '.join(value.split())}" for name, value in fields.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)) as speaker:
                speaker.setblocking(False)
                speaker.sendto(message.encode(), self.address)
        except OSError as error:
            log.warning("systemd cannot be told: %s", error)


def find_supervisor(environment: Mapping[str, str]) -> Supervisor | None:
    """Who started us, if it wants to hear. A watchdog that is meant for another process is not ours to feed."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return None
    microseconds = environment.get("WATCHDOG_USEC", "")
    ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    watchdog_s = int(microseconds) / 1e6 if microseconds.isdecimal() and ours else None
    return Supervisor("\0" + address[1:] if address.startswith("@") else address, watchdog_s)


async def watch(daemon: Daemon, environment: Mapping[str, str] = os.environ) -> None:
    """Tell the supervisor how the daemon is, until cancelled. Start it before the model loads.

    A daemon that is stalled, dead or failed is not fed: if it does not recover within the watchdog's time, systemd
    ends the process and starts another.
    """
    supervisor = find_supervisor(environment)
    if supervisor is None:
        return
    was_ready = was_draining = False
    while True:
        ready, document = read_health(daemon)
        state = document["state"]
        news = {"STATUS": f"{state}: {document['reason']}" if document["reason"] else state}
        if state in ALIVE:
            news["WATCHDOG"] = "1"
        if ready and not was_ready:
            was_ready, news["READY"] = True, "1"
        if state == "loading" and not was_ready:
            news["EXTEND_TIMEOUT_USEC"] = str(round(MORE_TIME_S * 1e6))
        if daemon.draining and not was_draining:
            was_draining, news["STOPPING"] = True, "1"
        supervisor.tell(**news)
        await asyncio.sleep(supervisor.pause_s if was_ready else min(1.0, supervisor.pause_s))
