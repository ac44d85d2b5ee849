"""A look at an adapter that costs milliseconds: headers only, so that a bad one is refused before a model is loaded.

Plain Python, no MLX: safe in any thread, and before MLX is imported.
"""

from dataclasses import dataclass
from pathlib import Path

from .files import content_hash
from .fit import fit
from .formats import read_adapter
from .parts import Adapter
from .shapes import folder_shapes


@dataclass(frozen=True, slots=True)
class Inspection:
    """What the headers say. fits: None when no model was given, or its files cannot tell before it is loaded."""

    adapter: Adapter
    content_hash: str
    fits: bool | None
    summary: str


def inspect(path: Path, model: Path | None = None) -> Inspection:
    """Read an adapter's headers and, if given, those of a model folder. Raises AdapterError."""
    adapter = read_adapter(path)
    shapes = folder_shapes(model) if model is not None else None
    if shapes is None:
        return Inspection(adapter, content_hash(adapter.files), None, "not matched against a model")
    summary = fit(adapter, shapes).summary("matched")
    return Inspection(adapter, content_hash(adapter.files), True, summary)
