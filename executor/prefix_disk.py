"""The disk under the prefix cache: blocks as checksummed safetensors files, written by a thread of their own.

No MLX here: arrays come and go as NumPy, converted on the executor thread. A damaged or vanished file is a miss.
"""

import hashlib
import json
import logging
import os
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

log = logging.getLogger(__name__)
QUEUED_BLOCKS = 64  # what waits for a slow disk is bounded; what does not fit is not kept
FORMAT = "1"


@dataclass(frozen=True, slots=True)
class Stored:
    """A block's arrays: raw NumPy values and the MLX type that they stand for (bfloat16 travels as uint16)."""

    arrays: tuple[np.ndarray[Any, Any], ...]
    dtype: str


class DiskTier:
    """Blocks of one model, by key. `load` and `has` on the executor thread; files are written in the background."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        folder.mkdir(parents=True, exist_ok=True)
        files = sorted(folder.glob("*.safetensors"), key=lambda path: path.stat().st_mtime)
        self._sizes = {path.stem: path.stat().st_size for path in files}
        self._lock = threading.Lock()
        self._queue: queue.Queue[tuple[str, Sequence[int], Stored] | None] = queue.Queue(QUEUED_BLOCKS)
        self._writer = threading.Thread(target=self._write_all, name="soloist-cache-writer", daemon=True)
        self._writer.start()

    @property
    def nbytes(self) -> int:
        return sum(self._sizes.values())

    def has(self, key: bytes) -> bool:
        return key.hex() in self._sizes

    def load(self, key: bytes, ids: Sequence[int]) -> Stored | None:
        """A stored block, verified; None when there is none, or none that can be trusted."""
        path = self.folder / f"{key.hex()}.safetensors"
        try:
            with safe_open(path, "np") as file:
                about = file.metadata() or {}
                arrays = tuple(file.get_tensor(str(index)) for index in range(len(file.keys())))
            if about.get("ids") != json.dumps(list(ids)) or about.get("digest") != digest_of(arrays):
                raise ValueError("the checksum does not agree")
            os.utime(path)
        except Exception as error:
            log.warning("prefix cache: %s is dropped: %s", path.name, error)
            self._forget(key.hex())
            return None
        return Stored(arrays, about["dtype"])

    def save(self, key: bytes, ids: Sequence[int], stored: Stored) -> None:
        """Have a block written. Never waits: when the disk is too slow, it is simply not kept."""
        try:
            self._queue.put_nowait((key.hex(), ids, stored))
        except queue.Full:
            log.debug("prefix cache: the disk is behind, a block is not kept")

    def close(self, within_s: float = 2.0) -> None:
        """Write what is queued, as far as the time allows."""
        try:
            self._queue.put(None, timeout=within_s)
        except queue.Full:
            return
        self._writer.join(within_s)

    # -- the writer's thread ---------------------------------------------------------------------

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                self._write(*item)
            except OSError as error:
                log.warning("prefix cache: a block could not be written: %s", error)

    def _write(self, name: str, ids: Sequence[int], stored: Stored) -> None:
        about = {"format": FORMAT, "ids": json.dumps(list(ids)), "dtype": stored.dtype}
        about["digest"] = digest_of(stored.arrays)
        data = save({str(index): array for index, array in enumerate(stored.arrays)}, about)
        path, partial = self.folder / f"{name}.safetensors", self.folder / f".{name}.{os.getpid()}.partial"
        partial.write_bytes(data)
        os.replace(partial, path)
        with self._lock:
            self._sizes[name] = len(data)
        while self.nbytes > self.limit:
            self._forget(next(iter(self._sizes)))

    def _forget(self, name: str) -> None:
        with self._lock:
            self._sizes.pop(name, None)
        (self.folder / f"{name}.safetensors").unlink(missing_ok=True)


def digest_of(arrays: Sequence[np.ndarray[Any, Any]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
