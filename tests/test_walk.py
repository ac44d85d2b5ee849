"""The walk through the house names things that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMES = sorted(set(re.findall(r"`((?:daemon|executor|sampler|tokenizer|lora|ops)/\w+\.py(?::[\w.]+)?)`",
                              (ROOT / "docs/walk.md").read_text())))  # fmt: skip


def defines(tree: ast.AST, dotted: str) -> bool:
    """Whether a module defines `name` or `Class.name`."""
    head, _, rest = dotted.partition(".")
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == head:
            return not rest or defines(node, rest)
    return False


def test_the_walk_names_its_stations() -> None:
    assert len(NAMES) > 30


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_the_walk_exists(name: str) -> None:
    path, _, dotted = name.partition(":")
    assert (ROOT / path).exists()
    assert not dotted or defines(ast.parse((ROOT / path).read_text()), dotted)
