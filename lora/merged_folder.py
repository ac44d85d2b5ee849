"""Writing a merged model as an mlx-lm model folder that loads everywhere. In a process of its own."""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.nn as nn
from mlx_lm.utils import save_model

from .errors import FormatError
from .files import read_json

COPIED = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".py")
RECEIPT = "merge_receipt.json"
LEFT = ("config.json", "soloist-import.json", RECEIPT)  # written anew, or true of the base only


def write_merged(
    model: nn.Module,
    base: Path,
    out: Path,
    config: Mapping[str, Any],
    kept_dense: Sequence[str],
    receipt: Mapping[str, Any],
) -> None:
    """Write model, configuration, the base's tokenizer files and a receipt; `out` appears whole or not at all.

    config: as `load_model` returned it for `base`. kept_dense: modules to be named as unquantised. Raises FormatError
    if `out` exists and is not empty.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FormatError(f"{out} exists already and is not empty")
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        save_model(unfinished, model)
        for path in sorted(base.iterdir()):
            kept = path.suffix in COPIED and path.name not in LEFT
            if path.is_file() and kept and not path.name.endswith(".index.json"):
                shutil.copy(path, unfinished / path.name)
        _write(unfinished / "config.json", merged_config(read_json(base / "config.json"), config, kept_dense))
        _write(unfinished / RECEIPT, receipt)
        unfinished.chmod(0o755)
        if out.exists():
            out.rmdir()
        unfinished.rename(out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def merged_config(written: Mapping[str, Any], loaded: Mapping[str, Any], kept_dense: Sequence[str]) -> dict[str, Any]:
    """The base's config.json with every unquantised module named: mlx-lm reads `false` as "leave this one dense"."""
    config = dict(written)
    quantisation = loaded.get("quantization")
    if quantisation:
        named = {**quantisation, **dict.fromkeys(kept_dense, False)}
        config["quantization"] = config["quantization_config"] = named
    return config


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
