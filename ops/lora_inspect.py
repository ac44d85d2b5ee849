"""`soloist lora inspect`: what an adapter is, where its factor comes from, and what strength a merge would have."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..lora.check import Inspection, inspect
from .lora_store import resolve_adapter
from .model_store import resolve
from .progress import shown


def inspect_adapter(reference: str, model: str | None, *, as_json: bool) -> int:
    """Print what is found. Without a model nothing but headers is read and MLX is not imported.

    Raises AdapterError (also if the adapter does not fit the model), ModelError.
    """
    with shown() as progress:
        path = resolve_adapter(reference, progress=progress)
        base = None if model is None else resolve(model, progress=progress)
    found = facts(inspect(path, base))
    if base is not None:
        found |= _merged(path, base)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _print_table(found)
    return 0


def facts(inspection: Inspection) -> dict[str, Any]:
    """The adapter in plain JSON types."""
    adapter = inspection.adapter
    return {
        "path": str(adapter.files.folder),
        "format": adapter.format,
        "ranks": list(adapter.ranks),
        "factors": list(adapter.factors),
        "factor_from": list(adapter.sources),
        "targets": list(adapter.targets),
        "pairs": len(adapter.pairs),
        "replaced_parameters": len(adapter.wholes),
        "content_hash": inspection.content_hash,
        "match": inspection.summary,
    }


def _merged(path: Path, base: Path) -> dict[str, Any]:
    from .lora_merge import load_base, plan, report_facts

    network, _ = load_base(base)
    _, report = plan(network, path)
    return {"match": report.summary.replace("merged", "matched"), "if_merged": report_facts(report)}


def _print_table(found: dict[str, Any]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in found.items():
        if name == "if_merged":
            for inner, figure in value.items():
                if inner != "modules":
                    table.add_row(f"if merged: {inner.replace('_', ' ')}", escape(_words(figure)))
        else:
            table.add_row(name.replace("_", " "), escape(_words(value)))
    Console().print(table)


def _words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_words(item) for item in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(item)}" for name, item in value.items())
    return f"{value:.4g}" if isinstance(value, float) else "none" if value is None else str(value)
