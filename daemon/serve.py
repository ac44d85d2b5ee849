"""`soloist serve`: from a bound port to an exit code. HTTP answers from the first moment; the model comes later."""

import asyncio
import logging
import os
import socket
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor

from aiohttp import web

from ..executor.blas import Blas, load_blas
from . import exit_codes, notify
from .address import AddressError, listening, read_tls
from .app import make_app
from .banner import start_block
from .config import Config, ConfigError
from .keys import read_keys
from .leave import OVERTIME_S, Leaving, drain, end_now, no_later_than, watch_for_hang
from .log_format import set_up as set_up_logging
from .protocol import factory
from .start import CannotServe, FindModel, load_model
from .state import Daemon, FindAdapter

log = logging.getLogger(__name__)


def run(config: Config, find: FindModel, find_adapter: FindAdapter) -> int:
    """Serve until a signal comes. `find` and `find_adapter` turn references into folders; they may raise CannotServe.

    Returns the exit code. What can be wrong with the configuration, the port or the model ends with one line.
    """
    set_up_logging(config)
    try:
        pool = ThreadPoolExecutor(max(2, min(4, os.cpu_count() or 1)), thread_name_prefix="soloist-text")
        daemon = Daemon(config, read_keys(config), pool, find_adapter)
        tls = read_tls(config)
        with listening(config) as listener:
            blas = load_blas()  # before anything imports MLX
            return asyncio.run(_serve(daemon, find, listener, tls, blas))
    except ConfigError as error:
        return _give_up(str(error), exit_codes.CONFIGURATION)
    except AddressError as error:
        return _give_up(str(error), exit_codes.PORT_TAKEN)
    except CannotServe as error:
        end_now(_give_up(str(error), error.exit_code))  # the executor thread may still be inside the load


def _give_up(message: str, code: int) -> int:
    print(f"soloist: {' '.join(message.split())}", file=sys.stderr, flush=True)
    return code


async def open_http(
    daemon: Daemon, listener: socket.socket, tls: ssl.SSLContext | None = None
) -> tuple[web.AppRunner, asyncio.Server, web.Server]:
    """Answer HTTP on a listening socket."""
    runner = web.AppRunner(make_app(daemon), handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    server = runner.server
    assert server is not None
    loop = asyncio.get_running_loop()
    open_server = loop.create_unix_server if listener.family == socket.AF_UNIX else loop.create_server
    return runner, await open_server(factory(server), sock=listener, ssl=tls), server


async def _serve(
    daemon: Daemon, find: FindModel, listener: socket.socket, tls: ssl.SSLContext | None, blas: Blas
) -> int:
    config = daemon.config
    runner, accepting, server = await open_http(daemon, listener, tls)
    leaving = Leaving()
    leaving.on_signals()
    daemon.leave = lambda: leaving.because(exit_codes.CLEAN)
    telling = asyncio.create_task(notify.watch(daemon))
    try:
        code = await _until_leaving(daemon, find, leaving, listener, blas)
        daemon.draining = True
        telling.cancel()
        telling = asyncio.create_task(notify.watch(daemon))  # says STOPPING now, not at its next turn
        # A load cannot be interrupted, nor can a hanging step; and nobody waits for an answer from either.
        hopeless = code != exit_codes.CLEAN or daemon.served is None
        if hopeless:
            end_now(code)
        no_later_than(config.shutdown_grace + OVERTIME_S, code)
        if not await drain(daemon, server, config.shutdown_grace):
            end_now(code)
        return code
    finally:
        telling.cancel()
        accepting.close()
        await runner.cleanup()
        daemon.pool.shutdown(wait=False, cancel_futures=True)


async def _until_leaving(daemon: Daemon, find: FindModel, leaving: Leaving, listener: socket.socket, blas: Blas) -> int:
    """Load, announce, and wait. Raises CannotServe when the load fails."""
    starting = asyncio.create_task(load_model(daemon, find))
    waiting = asyncio.create_task(leaving.wait())
    await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if waiting.done():
        return waiting.result()
    await starting
    assert daemon.served is not None and daemon.engine is not None
    port = 0 if listener.family == socket.AF_UNIX else listener.getsockname()[1]
    block = start_block(daemon.config, port, daemon.served, daemon.health(), blas, daemon.engine.remark)
    print(block, flush=True)
    watch = asyncio.create_task(watch_for_hang(daemon, leaving)) if daemon.config.exit_on_hang else None
    code = await waiting
    if watch is not None:
        watch.cancel()
    return code
