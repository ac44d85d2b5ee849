"""An adapter's folder as it lies on the disk: its configuration and the header of its safetensors file. No MLX."""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import FormatError
from .scale import Kind, kind_of

CONFIG = "adapter_config.json"
WEIGHTS: dict[Kind, str] = {"mlx-lm": "adapters.safetensors", "peft": "adapter_model.safetensors"}
UNREAD = {
    "adapter_model.bin": "a pickle, which could run code and is not read",
    "adapter_model.safetensors.index.json": "a sharded adapter, which is not read",
    "adapters.npz": "mlx-lm's old format, which is not read",
}
LONGEST_HEADER = 100_000_000  # the safetensors format's own limit, bytes


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of a safetensors header; dtype as the format spells it (F32, BF16, U32 ...)."""

    key: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """A readable adapter folder; nothing but headers has been read."""

    folder: Path
    kind: Kind
    config: Mapping[str, Any]
    weights: Path
    tensors: tuple[Tensor, ...]


def open_adapter(folder: Path) -> AdapterFiles:
    """Read configuration and header. Raises FormatError, and ScaleError if the configuration is of no one kind."""
    if not folder.is_dir():
        raise FormatError(f"there is no adapter folder {folder}")
    if not (folder / CONFIG).is_file():
        raise FormatError(f"{folder} has no {CONFIG}", [CONFIG])
    config = read_json(folder / CONFIG)
    kind = kind_of(config)
    weights = folder / WEIGHTS[kind]
    if not weights.is_file():
        found = [f"{name} is {why}" for name, why in UNREAD.items() if (folder / name).exists()]
        detail = f" ({'; '.join(found)})" if found else ""
        raise FormatError(f"{folder} has no {WEIGHTS[kind]}, where {kind} keeps its tensors{detail}", [WEIGHTS[kind]])
    tensors = tuple(read_header(weights).values())
    if not tensors:
        raise FormatError(f"{weights} holds no tensors")
    return AdapterFiles(folder, kind, config, weights, tensors)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises FormatError."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, OSError) as error:
        raise FormatError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{path} is not a JSON object")
    return value


def read_header(path: Path) -> dict[str, Tensor]:
    """The tensors that a safetensors file says it has; also checks that the file is as long as it says."""
    entries, _ = _raw_header(path)
    return {key: Tensor(key, entry["dtype"], tuple(entry["shape"])) for key, entry in entries.items()}


def read_metadata(path: Path) -> dict[str, str]:
    """The free-form `__metadata__` of a safetensors file."""
    return _raw_header(path)[1]


def _raw_header(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size - 8, LONGEST_HEADER):
                raise ValueError(f"its header claims {length} bytes")
            entries = json.loads(file.read(length))
        metadata = entries.pop("__metadata__", {})
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise FormatError(f"{path} is not a safetensors file: {error}") from None
    if 8 + length + end != size:
        raise FormatError(f"{path} is damaged: {size} bytes long where its header says {8 + length + end}")
    return entries, metadata


def content_hash(files: AdapterFiles) -> str:
    """SHA-256 over configuration and tensors: what a prefix cache keys the adapter by."""
    digest = hashlib.sha256()
    for path in (files.folder / CONFIG, files.weights):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
