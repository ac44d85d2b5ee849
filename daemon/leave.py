"""Leaving: on the first signal running requests may finish within the grace time, on the second the process is gone.

Runs on the event loop, but for the timer that ends the process if all else hangs.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
from typing import NoReturn

from aiohttp import web

from ..executor.errors import ExecutorError
from . import exit_codes
from .state import Daemon

log = logging.getLogger(__name__)
FLUSH_S = 0.3  # for error events to reach clients that read
OVERTIME_S = 1.6  # beyond the grace time; then the process ends whatever still hangs


class Leaving:
    """Waits for a reason to end the process. One for each process."""

    def __init__(self) -> None:
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._code.done():
            end_now(exit_codes.SIGNALLED + number)
        log.warning("%s: shutting down", number.name)
        self._code.set_result(exit_codes.CLEAN)

    def because(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)

    async def wait(self) -> int:
        return await asyncio.shield(self._code)


def end_now(code: int) -> NoReturn:
    """Without destructors: a thread that is inside native code cannot be asked to leave."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def no_later_than(seconds: float, code: int) -> None:
    """End the process by then even if the event loop, or a thread, hangs."""
    timer = threading.Timer(seconds, os._exit, [code])
    timer.daemon = True
    timer.start()


async def drain(daemon: Daemon, server: web.Server, grace_s: float) -> bool:
    """Finish or fail what runs, then drop every connection. Returns whether the executor thread has ended."""
    daemon.draining = True
    ended = True
    if daemon.engine is not None:
        try:
            await daemon.engine.stop(grace_s)
        except ExecutorError as error:
            log.warning("%s", error)
            ended = False
    for _ in range(10):
        if not daemon.answering:
            break
        await asyncio.sleep(FLUSH_S / 10)
    for connection in server.connections:
        if connection.transport is not None:
            connection.transport.abort()  # a client that does not read cannot hold us
    return ended


async def watch_for_hang(daemon: Daemon, leaving: Leaving) -> None:
    """With --exit-on-hang: a stalled or finally failed executor ends the process, so that its supervisor acts."""
    while True:
        health = daemon.health()
        if health.state in ("stalled", "failed"):
            log.critical("the executor is %s: %s; ending the process", health.state, health.reason)
            await asyncio.sleep(FLUSH_S)
            leaving.because(exit_codes.EXECUTOR_HUNG)
            return
        await asyncio.sleep(min(1.0, daemon.config.stall_after / 4))
