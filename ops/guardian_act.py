"""What a guardian does about a sick instance: runs a command, tells a webhook. Both have deadlines."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp

OUTPUT_KEPT = 2000
WEBHOOK_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Done:
    """outcome: ok | failed | timeout | missing. output: the end of what the command printed."""

    outcome: str
    code: int | None = None
    output: str = ""


def fill_in(words: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Each word keeps its borders whatever is put into it: no shell reads the result."""
    filled = []
    for word in words:
        for name, value in values.items():
            word = word.replace("{" + name + "}", value)
        filled.append(word)
    return filled


async def run_command(words: Sequence[str], within: float) -> Done:
    """Never raises. The command's process group is killed at the deadline; what it leaves running is left alone."""
    with tempfile.TemporaryFile() as output:  # a pipe would be held open by a server that the command starts
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            return Done("missing", output=str(error))
        try:
            async with asyncio.timeout(within):
                code = await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            return Done("timeout")
        output.seek(max(0, output.seek(0, os.SEEK_END) - OUTPUT_KEPT))
        said = output.read(OUTPUT_KEPT).decode(errors="replace").strip()
    return Done("ok" if code == 0 else "failed", code, said)


async def tell_webhook(session: aiohttp.ClientSession, url: str, document: Mapping[str, Any]) -> Done:
    """POST a JSON document. Never raises."""
    try:
        async with asyncio.timeout(WEBHOOK_WITHIN_S), session.post(url, json=document) as answer:
            return Done("ok" if answer.status < 400 else "failed", answer.status)
    except TimeoutError:
        return Done("timeout")
    except (aiohttp.ClientError, OSError) as error:
        return Done("missing", output=str(error))
