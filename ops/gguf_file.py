"""Reads a GGUF file's metadata and where its tensors lie, believing no number in it before checking it.

Format: GGUF versions 2 and 3, little-endian, as specified in ggml's docs/gguf.md. Tensor bytes stay in the file
(memory-mapped) until asked for.
"""

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .model_errors import ModelDamaged, ModelNotFound, ModelUnsupported

# Value type -> (struct code, bytes); 8 is a string, 9 an array.
SCALARS = {
    0: ("B", 1), 1: ("b", 1), 2: ("H", 2), 3: ("h", 2), 4: ("I", 4), 5: ("i", 4),
    6: ("f", 4), 7: ("?", 1), 10: ("Q", 8), 11: ("q", 8), 12: ("d", 8),
}  # fmt: skip
STRING, ARRAY = 8, 9

TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip
# Type -> (values in a block, bytes of a block).
BLOCKS = {"F32": (1, 4), "F16": (1, 2), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q8_0": (32, 34)}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """shape: rows first (numpy's order, the reverse of the file's); offset: bytes from the start of the file."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int

    @property
    def bytes(self) -> int:
        values, size = BLOCKS[self.type]
        return math.prod(self.shape) // values * size


class Cursor:
    """Walks the header. Raises ModelDamaged when a field would reach beyond the end of the file."""

    def __init__(self, data: mmap.mmap, name: str) -> None:
        self.data, self.name, self.at = data, name, 0

    def take(self, size: int) -> int:
        start = self.at
        if size > len(self.data) - start:
            raise ModelDamaged(f"{self.name} is truncated: its header reaches beyond its {len(self.data)} bytes")
        self.at += size
        return start

    def number(self, code: str) -> Any:
        return struct.unpack_from("<" + code, self.data, self.take(struct.calcsize("<" + code)))[0]

    def text(self) -> str:
        size = self.number("Q")
        start = self.take(size)
        return self.data[start : start + size].decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            return self.array()
        if kind not in SCALARS:
            raise ModelDamaged(f"{self.name} is damaged: metadata of unknown type {kind} at byte {self.at}")
        return self.number(SCALARS[kind][0])

    def array(self) -> list[Any]:
        kind, count = self.number("I"), self.number("Q")
        if kind in SCALARS:
            code, size = SCALARS[kind]
            start = self.take(size * count)
            return list(struct.unpack_from(f"<{count}{code}", self.data, start))
        self.expect(count, 8)
        return [self.value(kind) for _ in range(count)]

    def expect(self, count: int, at_least: int) -> None:
        """Refuse a count that cannot be true before looping over it: every item needs `at_least` bytes."""
        if count * at_least > len(self.data) - self.at:
            raise ModelDamaged(f"{self.name} is truncated or damaged: it announces {count} items at byte {self.at}")


class GgufFile:
    """An opened GGUF file: `metadata` by key, `tensors` by name, and the bytes of each on request."""

    def __init__(self, path: Path) -> None:
        """Raises ModelNotFound, ModelDamaged, ModelUnsupported (version, byte order or tensor type; named)."""
        self.path = path
        try:
            with path.open("rb") as handle:
                self.data = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:  # mmap cannot map nothing
            raise ModelDamaged(f"{path} is empty") from error
        except OSError as error:
            raise ModelNotFound(f"cannot read {path}: {error.strerror}") from error
        cursor = Cursor(self.data, str(path))
        tensors = self._open(cursor)
        self.metadata = self._metadata(cursor)
        self.tensors = self._tensors(cursor, tensors)

    def __enter__(self) -> "GgufFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.data.close()

    def blocks(self, tensor: GgufTensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The tensor's bytes, uint8, copied out of the file: (rows, bytes of a row), or (bytes,) for a vector."""
        flat = np.frombuffer(self.data, np.uint8, tensor.bytes, tensor.offset).copy()
        return flat.reshape(*tensor.shape[:-1], -1)

    def _open(self, cursor: Cursor) -> int:
        """Check magic and version, and return the number of tensors; the metadata count comes next."""
        if self.data[:4] != b"GGUF":
            raise ModelDamaged(f"{self.path} is not a GGUF file: it starts with {bytes(self.data[:4])!r}")
        cursor.take(4)
        version: int = cursor.number("I")
        if version & 0xFFFF == 0:
            raise ModelUnsupported(f"{self.path} is a big-endian GGUF file, which is not supported")
        if version not in (2, 3):
            raise ModelUnsupported(f"{self.path} is GGUF version {version}; versions 2 and 3 are supported")
        tensors: int = cursor.number("Q")
        return tensors

    def _metadata(self, cursor: Cursor) -> dict[str, Any]:
        count = cursor.number("Q")
        cursor.expect(count, 13)
        found = {}
        for _ in range(count):
            key = cursor.text()
            found[key] = cursor.value(cursor.number("I"))
        return found

    def _tensors(self, cursor: Cursor, count: int) -> dict[str, GgufTensor]:
        cursor.expect(count, 24)
        heads = [(cursor.text(), self._shape(cursor), cursor.number("I"), cursor.number("Q")) for _ in range(count)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ModelDamaged(f"{self.path} is damaged: its alignment is {alignment!r}")
        base = -(-cursor.at // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for name, shape, kind, offset in heads:
            if name in tensors:
                raise ModelDamaged(f"{self.path} is damaged: it holds the tensor {name} twice")
            tensors[name] = self._located(name, shape, kind, base + offset)
        return tensors

    def _shape(self, cursor: Cursor) -> tuple[int, ...]:
        axes = cursor.number("I")
        if not 1 <= axes <= 4:
            raise ModelDamaged(f"{self.path} is damaged: a tensor with {axes} axes at byte {cursor.at}")
        return tuple(reversed([cursor.number("Q") for _ in range(axes)]))

    def _located(self, name: str, shape: tuple[int, ...], kind: int, offset: int) -> GgufTensor:
        type_name = TYPE_NAMES.get(kind, f"number {kind}")
        if type_name not in BLOCKS:
            raise ModelUnsupported(
                f"{self.path}: tensor {name} is of type {type_name}; supported are {', '.join(BLOCKS)}"
            )
        if shape[-1] % BLOCKS[type_name][0]:
            raise ModelDamaged(f"{self.path} is damaged: {name} has rows of {shape[-1]} values in {type_name}")
        tensor = GgufTensor(name, type_name, shape, offset)
        if offset + tensor.bytes > len(self.data):
            raise ModelDamaged(
                f"{self.path} is truncated: {name} ends at byte {offset + tensor.bytes}, the file at {len(self.data)}"
            )
        return tensor
