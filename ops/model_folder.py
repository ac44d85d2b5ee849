"""Whether a folder can be served, judged in milliseconds from JSON and safetensors headers: no MLX, no weights read."""

import ast
import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .model_errors import ModelDamaged, ModelNotFound, ModelUnsupported
from .safetensors_file import Entry, read_header

WEIGHTS = "model*.safetensors"  # what mlx-lm loads
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """model_type as config.json says; bytes of all weight files; quantization in words ("4-bit", "BF16")."""

    path: Path
    model_type: str
    bytes: int
    quantization: str


def check_folder(path: Path) -> FolderFacts:
    """Facts about a model folder that should load. Raises ModelNotFound, ModelDamaged, ModelUnsupported: one line."""
    if not path.is_dir():
        raise ModelNotFound(f"there is no model folder {path}")
    config = read_config(path)
    model_type = _known_type(path, config)
    files = _weight_files(path)
    headers = {file.name: read_header(file) for file in files}
    _check_index(path, headers)
    entries = [entry for header in headers.values() for entry in header.values()]
    if not entries:
        raise ModelDamaged(f"{path} holds no weights: its safetensors files are empty")
    return FolderFacts(path, model_type, sum(file.stat().st_size for file in files), _in_words(config, entries))


def read_config(path: Path) -> dict[str, Any]:
    """config.json of a model folder. Raises ModelDamaged if it is missing or no JSON object."""
    file = path / "config.json"
    try:
        config = json.loads(file.read_bytes())
    except FileNotFoundError:
        hint = "; it holds a LoRA adapter: use --adapter" if (path / "adapter_config.json").exists() else ""
        raise ModelDamaged(f"{path} is not a model folder: it has no config.json{hint}") from None
    except OSError as error:
        raise ModelDamaged(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise ModelDamaged(f"{file} is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise ModelDamaged(f"{file} is not a JSON object")
    return config


def _known_type(path: Path, config: dict[str, Any]) -> str:
    """The model type, if mlx-lm has a file for it (or the folder brings its own)."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not re.fullmatch(r"[\w.-]+", model_type):
        raise ModelDamaged(f"{path / 'config.json'} names no model_type")
    if "model_file" in config:
        return model_type
    names = {model_type, _remapped().get(model_type, model_type)}
    library = _mlx_lm()
    folder = library / "models" if library else None
    if folder and not any((folder / f"{name}.py").is_file() or (folder / name).is_dir() for name in names):
        raise ModelUnsupported(f"{path}: model type {model_type!r} is not supported by the installed mlx-lm")
    return model_type


@cache
def _mlx_lm() -> Path | None:
    """Where mlx-lm lies. Finding a top-level package does not import it."""
    spec = find_spec("mlx_lm")
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


@cache
def _remapped() -> dict[str, str]:
    """mlx-lm's MODEL_REMAPPING, read from its source; empty if it is not where it used to be."""
    folder = _mlx_lm()
    try:
        tree = ast.parse((folder / "utils.py").read_text(encoding="utf-8")) if folder else ast.parse("")
    except (OSError, SyntaxError):
        return {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODEL_REMAPPING":
            return dict(ast.literal_eval(node.value))
    return {}


def _weight_files(path: Path) -> list[Path]:
    files = sorted(path.glob(WEIGHTS))
    if files:
        return files
    others = sorted(file.name for suffix in ("*.gguf", "*.bin", "*.safetensors", "*.npz") for file in path.glob(suffix))
    found = f" (only {', '.join(others[:3])})" if others else ""
    raise ModelDamaged(f"{path} holds no {WEIGHTS}{found}")


def _check_index(path: Path, headers: dict[str, dict[str, Entry]]) -> None:
    """Every shard that the index names is there and holds the tensors that the index puts into it."""
    try:
        index = json.loads((path / INDEX).read_bytes())
        shards = dict(index["weight_map"])
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ModelDamaged(f"{path / INDEX} cannot be read: {error!r}") from error
    for tensor, shard in shards.items():
        if shard not in headers and not (path / str(shard)).is_file():
            raise ModelDamaged(f"{path} is incomplete: {shard}, named by its index, is missing")
        if shard in headers and tensor not in headers[shard]:
            raise ModelDamaged(f"{path} is damaged: its index puts {tensor} into {shard}, which lacks it")


def _in_words(config: dict[str, Any], entries: list[Entry]) -> str:
    """How the weights are stored: "4-bit", "4/8-bit", or the floats that most bytes are in."""
    quantization = config.get("quantization") or config.get("quantization_config")
    if isinstance(quantization, dict) and "bits" in quantization:
        modules = [part for part in quantization.values() if isinstance(part, dict)]
        bits = sorted({int(part["bits"]) for part in [quantization, *modules] if "bits" in part})
        mode = quantization.get("mode", "affine")
        return "/".join(map(str, bits)) + "-bit" + ("" if mode == "affine" else f" {mode}")
    stored: Counter[str] = Counter()
    for entry in entries:
        stored[entry.dtype] += entry.end - entry.begin
    return stored.most_common(1)[0][0]
