"""What an imported folder should hold: sizes and SHA-256 of its files, so that damage is seen before it is served.

A file whose size and time of last change are as recorded is taken as it is; one that was touched is hashed. So a second
start is instant, whatever the model weighs.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MANIFEST = "soloist-import.json"
IMPORTER = 1  # raised when the importer would write something else from the same source


def file_sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def seal(folder: Path, source: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Write the manifest of `folder`. source: where it came from; known: SHA-256 of files already hashed."""
    files = {
        path.name: {
            "size": path.stat().st_size,
            "changed_ns": path.stat().st_mtime_ns,
            "sha256": known.get(path.name) or file_sha256(path),
        }
        for path in sorted(folder.iterdir())
    }
    content = {"importer": IMPORTER, "source": dict(source), "files": files}
    (folder / MANIFEST).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read(folder: Path) -> dict[str, Any] | None:
    """The manifest, or None where there is none that can be read."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    shaped = isinstance(content, dict) and isinstance(content.get("files"), dict)
    return content if shaped and isinstance(content.get("source"), dict) else None


def damage(folder: Path, thorough: bool = False) -> str | None:
    """Why `folder` is not what was imported, or None if it is. thorough: hash every file, however it looks."""
    content = read(folder)
    if content is None:
        return "it was never imported completely"
    if content.get("importer") != IMPORTER:
        return "it was written by another version of the importer"
    for name, entry in content["files"].items():
        path = folder / name
        try:
            status = path.stat()
        except OSError:
            return f"{name} is missing"
        if status.st_size != entry["size"]:
            return f"{name} has {status.st_size} bytes instead of {entry['size']}"
        touched = thorough or status.st_mtime_ns != entry["changed_ns"]
        if touched and file_sha256(path) != entry["sha256"]:
            return f"{name} is not the file that was imported"
    return None
