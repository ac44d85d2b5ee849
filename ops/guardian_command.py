"""`soloist guardian --watch URL...`: patrols instances, tells wedged from busy, and has the wedged ones restarted."""

import argparse
import asyncio
import signal
import sys
from contextlib import AsyncExitStack

import aiohttp

from ..daemon.exit_codes import CLEAN, CONFIGURATION, PORT_TAKEN
from .guardian import Guardian
from .guardian_config import GuardianConfig, GuardianError, add_flags, read_config
from .guardian_face import agent_server, metrics_server

AMISS = 1


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `guardian` to the root command; `run` is left in the parsed arguments."""
    parser = subparsers.add_parser(
        "guardian", help="patrol instances and act on sick ones", description=__doc__, allow_abbrev=False
    )
    add_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 after SIGTERM or SIGINT; with --once 1 if anything is amiss; 71 or 78 when it cannot start."""
    try:
        config = read_config(args)
        key = read_key(config)
    except GuardianError as error:
        return _give_up(str(error), CONFIGURATION)
    try:
        return asyncio.run(_once(config, key) if config.once else _watch(config, key))
    except OSError as error:
        return _give_up(f"the guardian cannot start: {error}", PORT_TAKEN)


def _give_up(message: str, code: int) -> int:
    print(f"soloist: {message}", file=sys.stderr)
    return code


def read_key(config: GuardianConfig) -> str | None:
    """The first key of the file; a name before a colon is the key's, as for `serve`. Raises GuardianError."""
    if config.api_key_file is None:
        return None
    try:
        lines = config.api_key_file.read_text("utf-8").split()
    except OSError as error:
        raise GuardianError(f"api_key_file {config.api_key_file}: {error.strerror}") from None
    if not lines:
        raise GuardianError(f"api_key_file {config.api_key_file} is empty")
    return lines[0].rpartition(":")[2]


def new_session() -> aiohttp.ClientSession:
    """A new connection for each probe: an old one would not show that new clients get in."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=0))


async def _once(config: GuardianConfig, key: str | None) -> int:
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(new_session())
        guardian = Guardian(config, session, key)
        stack.callback(guardian.close)
        verdicts = await asyncio.gather(*(guardian.visit(patient) for patient in guardian.patients))
    for patient in guardian.patients:
        print(f"{patient.watched.name}: {patient.verdict.word} {patient.verdict.reason}".rstrip())
    return AMISS if any(verdict.miss for verdict in verdicts) else CLEAN


async def _watch(config: GuardianConfig, key: str | None) -> int:
    """Until SIGTERM or SIGINT; SIGUSR1 asks for a report now."""
    loop, leaving, report_now = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, leaving.set)
    loop.add_signal_handler(signal.SIGINT, leaving.set)
    loop.add_signal_handler(signal.SIGUSR1, report_now.set)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(new_session())
        guardian = Guardian(config, session, key)
        stack.callback(guardian.close)
        await stack.enter_async_context(metrics_server(config.listen, guardian.metrics, guardian.opinions))
        await stack.enter_async_context(agent_server(config.agent, guardian.opinions))
        tasks = [asyncio.create_task(guardian.patrol(patient)) for patient in guardian.patients]
        tasks += [asyncio.create_task(guardian.reports(report_now)), asyncio.create_task(_until(leaving))]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await guardian.report()
        for task in done:
            task.result()  # a bug in one patrol must not pass for a wanted end
    return CLEAN


async def _until(event: asyncio.Event) -> None:
    await event.wait()
