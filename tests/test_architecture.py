"""The picture of the rooms, kept true by reading the imports."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("daemon", "executor", "lora", "tokenizer", "sampler", "ops")
MAY_IMPORT = {
    "ops": {"ops", "daemon", "executor", "tokenizer", "sampler", "lora"},
    "daemon": {"daemon", "executor", "tokenizer", "sampler.params", "sampler.keys"},
    "executor": {"executor", "sampler", "lora"},
    "tokenizer": {"tokenizer"},
    "sampler": {"sampler"},
    "lora": {"lora"},
}
PLAIN_FACE = {"engine", "stream", "request", "inbox", "pulse", "health", "settings", "errors", "blas", "life", "vitals"}
PLAIN_SAMPLER = {"params", "keys"}


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Every imported module of a file as a dotted name; ours begin with the room."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(ROOT).parts[:-1]
            base = package[: len(package) - node.level + 1]
            inner = (*base, *(node.module.split(".") if node.module else ()))
            yield from (".".join((*inner, a.name)) for a in node.names)


def ours(name: str) -> bool:
    return name.split(".")[0] in ROOMS


def allowed(name: str, room: str) -> bool:
    return any(name == door or name.startswith(door + ".") for door in MAY_IMPORT[room])


@pytest.mark.parametrize("room", ROOMS)
def test_no_arrow_runs_upward(room: str) -> None:
    upward = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(room)
        for name in imports(path)
        if ours(name) and not allowed(name, room)
    ]
    assert upward == []


def test_an_upward_import_is_caught(tmp_path: Path) -> None:
    assert not allowed("daemon.app.make_app", "executor")
    assert not allowed("sampler.chain.sample", "daemon")
    assert allowed("sampler.params.DEFAULTS", "daemon")


@pytest.mark.parametrize("room", ["daemon", "tokenizer"])
def test_rooms_without_mlx_never_import_it(room: str) -> None:
    offenders = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(room)
        for name in imports(path)
        if name.split(".")[0] in {"mlx", "mlx_lm"}
    ]
    assert offenders == []


def test_the_executors_asyncio_face_is_plain_python() -> None:
    faces = [ROOT / "executor" / f"{name}.py" for name in PLAIN_FACE] + [
        ROOT / "sampler" / f"{name}.py" for name in PLAIN_SAMPLER
    ]
    offenders = [
        f"{path.name} imports {name}"
        for path in faces
        if path.exists()
        for name in imports(path)
        if name.split(".")[0] in {"mlx", "mlx_lm"}
    ]
    assert offenders == []


def test_the_executor_imports_neither_text_nor_http() -> None:
    offenders = [
        f"{path.name} imports {name}"
        for path in modules("executor")
        for name in imports(path)
        if name.split(".")[0] in {"tokenizer", "tokenizers", "aiohttp", "jinja2", "transformers"}
    ]
    assert offenders == []


def test_our_own_imports_are_relative() -> None:
    offenders = [
        f"{path.relative_to(ROOT)} imports {name}"
        for room in ROOMS
        for path in modules(room)
        for name in imports(path)
        if name.split(".")[0] == "soloist"
    ]
    assert offenders == []


def test_only_the_package_files_lie_at_the_root() -> None:
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_the_front_end_can_be_imported_without_mlx() -> None:
    import subprocess

    code = (
        "import sys, soloist.daemon.serve, soloist.executor.engine, soloist.tokenizer.tokenizer; "
        "sys.exit(any(m.split('.')[0] in ('mlx', 'mlx_lm', 'transformers') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
