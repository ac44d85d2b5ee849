"""The adapters as the rounds use them: loaded and unloaded on command, held while a row needs them.

Runs on the executor thread only.
"""

from collections.abc import Container
from pathlib import Path

from ..lora.bank import AdapterBank
from ..lora.errors import AdapterError
from .request import AdapterReply, LoadAdapter, UnloadAdapter
from .sequence import Sequence


class Adapters:
    """Rows hold their adapter from the moment they are opened until they have left the batch."""

    def __init__(self, bank: AdapterBank) -> None:
        self.bank = bank
        self._holders: list[Sequence] = []

    def load(self, command: LoadAdapter) -> AdapterReply:
        try:
            info = self.bank.load(command.name, Path(command.path))
        except AdapterError as error:
            return AdapterReply(command.ticket, error=error.message)
        except Exception as error:
            return AdapterReply(command.ticket, error=f"the adapter cannot be read: {error}")
        return AdapterReply(command.ticket, info)

    def unload(self, command: UnloadAdapter) -> AdapterReply:
        """The name is gone at once; the weights with the last row that uses them."""
        try:
            info = self.bank.info(self.bank.slot(command.name))
            self.bank.unload(command.name)
        except AdapterError as error:
            return AdapterReply(command.ticket, error=error.message)
        return AdapterReply(command.ticket, info)

    def hold(self, row: Sequence) -> None:
        """Find the row's adapter and keep it alive. Raises AdapterError: unloaded since the request was taken."""
        row.slot = self.bank.slot(row.request.adapter)
        if row.slot:
            self.bank.retain(row.slot)
            self._holders.append(row)

    def release(self, busy: Container[Sequence]) -> None:
        """Let go of the adapters of rows that have ended and are computed no more."""
        ended = [row for row in self._holders if row.ended and row not in busy]
        for row in ended:
            self._holders.remove(row)
            self.bank.release(row.slot)

    def release_all(self) -> None:
        """The rows are gone, with the thread that had them."""
        for row in self._holders:
            self.bank.release(row.slot)
        self._holders.clear()

    def identity(self, row: Sequence) -> bytes:
        """What an adapter does to keys and values: its content, whatever its name."""
        info = self.bank.info(row.slot)
        return info.content_hash.encode() if info else b""
