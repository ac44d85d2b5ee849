"""Tiny scripted models, each served once for the whole room."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from http_server import Server, serving
from tiny_models import ABCD, scripted

PIECES = ["alpha", " be", "ta ga", "mma", " delta", " The quick br", "own f", "ox", " end"]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """dist draws a, b, c, d for ever; stop recites PIECES and ends; loop recites w0 to w3 for ever."""
    root = tmp_path_factory.mktemp("models")
    scripted(root / "dist", dist=ABCD)
    scripted(root / "stop", PIECES)
    scripted(root / "loop", ["w0 ", "w1 ", "w2 ", "w3 "], after_last="w0 ")
    scripted(root / "untemplated", PIECES, template=None, bos_first=True)
    return root


@pytest.fixture(scope="session")
def dist(folders: Path) -> Iterator[Server]:
    with serving(folders / "dist") as server:
        yield server


@pytest.fixture(scope="session")
def stop(folders: Path) -> Iterator[Server]:
    with serving(folders / "stop") as server:
        yield server


@pytest.fixture(scope="session")
def loop(folders: Path) -> Iterator[Server]:
    with serving(folders / "loop") as server:
        yield server
