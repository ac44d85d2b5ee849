"""docs/protocol.md names every path, field, header, error code and exit code that the code has."""

import ast
import re
from pathlib import Path

import pytest
from http_server import Server
from soloist.daemon import exit_codes
from soloist.daemon.schemas import ChatBody, CompletionBody

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text()


@pytest.mark.parametrize("field", sorted({*ChatBody.__struct_fields__, *CompletionBody.__struct_fields__}))
def test_every_field_is_described(field: str) -> None:
    assert f"`{field}`" in PAGE


def test_every_exit_code_is_described() -> None:
    for name, code in vars(exit_codes).items():
        if name.isupper():
            assert re.search(rf"\| {code}( \+ n)? \| {name} \|", PAGE), name


def test_every_error_code_is_described() -> None:
    """Every literal that is given, or assigned, as a `code` in this room."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "daemon").glob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    values = [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "code"]
    values += [n.value for n in nodes if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "code"]
    codes = {v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str)}
    assert len(codes) > 15
    assert {code for code in codes if f"`{code}`" not in PAGE} - {"unavailable", "forbidden"} == set()


def test_every_path_and_header_is_described(stop: Server) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/models", "/health", "/health/live", "/health/deep"):
        assert f"`{path}`" in PAGE
    reply = stop.chat(max_tokens=1, unheard=1)
    for header in reply.headers:
        if header.startswith("x-"):
            assert f"`{header}`" in PAGE


def test_every_member_of_the_health_document_is_described(stop: Server) -> None:
    for name in stop.get("/health").json:
        assert f"`{name}`" in PAGE, name
