"""Safetensors files without their weights: a header read and checked, and a file written one tensor at a time.

Format: https://huggingface.co/docs/safetensors#format. An 8-byte little-endian length, a JSON header, the data.
"""

import hashlib
import json
import math
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .model_errors import ModelDamaged

NAMES = {"float32": "F32", "float16": "F16", "uint32": "U32"}
BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8,
    "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8,
}  # fmt: skip
LONGEST_HEADER = 100_000_000  # the format's own bound


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a header: dtype as the format names it ("F32"), and its bytes in the data part."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: Path) -> dict[str, Entry]:
    """What `path` holds, by tensor name. Reads the header only. Raises ModelDamaged if the file cannot hold it."""
    try:
        size = path.stat().st_size
        with path.open("rb") as handle:
            start = handle.read(8)
            if start.startswith(b"version "):
                raise ModelDamaged(f"{path} is a Git LFS pointer, not the file itself: run `git lfs pull`")
            if len(start) < 8:
                raise ModelDamaged(f"{path} is truncated: it has {size} bytes")
            length = struct.unpack("<Q", start)[0]
            if length > LONGEST_HEADER:
                raise ModelDamaged(f"{path} is not a safetensors file: it announces a header of {length} bytes")
            if 8 + length > size:
                raise ModelDamaged(f"{path} is truncated: its header needs {8 + length} bytes, it has {size}")
            text = handle.read(length)
    except OSError as error:
        raise ModelDamaged(f"cannot read {path}: {error.strerror}") from error
    entries = _entries(path, text)
    needed = 8 + length + max((entry.end for entry in entries.values()), default=0)
    if needed > size:
        raise ModelDamaged(f"{path} is truncated: its header describes {needed} bytes, it has {size}")
    return entries


def _entries(path: Path, text: bytes) -> dict[str, Entry]:
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        entries = {
            name: Entry(str(item["dtype"]), tuple(map(int, item["shape"])), *map(int, item["data_offsets"]))
            for name, item in header.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelDamaged(f"{path} is damaged: its safetensors header cannot be read") from error
    for name, entry in entries.items():
        bits = BITS.get(entry.dtype)
        wrong = bits is not None and math.prod(entry.shape) * bits != (entry.end - entry.begin) * 8
        if entry.begin < 0 or entry.end < entry.begin or wrong:
            raise ModelDamaged(f"{path} is damaged: {name} does not fit the bytes that its header gives it")
    return entries


class Writer:
    """Writes tensors in the order of `plan` ({name: (numpy dtype name, shape)}), so that one at a time is in memory.

    Used as a context manager; `sha256` and `size` are those of the whole file once it has closed.
    """

    def __init__(self, path: Path, plan: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
        header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
        at = 0
        for name, (dtype, shape) in plan.items():
            end = at + math.prod(shape) * np.dtype(dtype).itemsize
            header[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [at, end]}
            at = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # the data starts aligned
        self.plan, self.waiting = plan, list(plan)[::-1]
        self.digest, self.size = hashlib.sha256(), 0
        self.handle = path.open("wb")
        self._write(struct.pack("<Q", len(text)) + text)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        with self.handle:
            if failure is None:
                assert not self.waiting, f"never written: {self.waiting}"
                self.handle.flush()
                os.fsync(self.handle.fileno())

    @property
    def sha256(self) -> str:
        return self.digest.hexdigest()

    def add(self, tensors: Iterable[tuple[str, np.ndarray[Any, np.dtype[Any]]]]) -> None:
        for name, array in tensors:
            assert name == self.waiting.pop(), f"{name} is out of turn"
            assert (array.dtype.name, array.shape) == self.plan[name], f"{name}: not as planned"
            self._write(np.ascontiguousarray(array).data)

    def _write(self, data: bytes | memoryview) -> None:
        self.handle.write(data)
        self.digest.update(data)
        self.size += len(data) if isinstance(data, bytes) else data.nbytes
