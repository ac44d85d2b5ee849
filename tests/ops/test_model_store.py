"""What users call a model, resolved; and the commands around it, run as users run them."""

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_gguf
from soloist.ops import model_manifest
from soloist.ops.model_errors import ModelDamaged, ModelError, ModelNotFound, ModelUnsupported
from soloist.ops.model_store import resolve

COMMAND = """
import argparse, sys
from soloist.ops import models_command
parser = argparse.ArgumentParser(prog="soloist")
commands = parser.add_subparsers(required=True)
models_command.add_parser(commands)
args = parser.parse_args()
sys.exit(args.run(args))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOLOIST_MODELS_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "cache"


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return tiny_gguf.write(tmp_path / "my tiny.gguf", tiny_gguf.weights(), "Q8_0")


def soloist(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The commands in a process of their own, as the root command calls them."""
    whole = {**os.environ, **environment}
    command = [sys.executable, "-c", COMMAND, *words]
    return subprocess.run(command, capture_output=True, text=True, env=whole, timeout=60, check=False)


def test_a_gguf_is_imported_on_first_use_and_found_by_its_content_after(gguf: Path, tmp_path: Path) -> None:
    folder = resolve(str(gguf))
    assert folder == tmp_path / "cache" / "models" / "my-tiny"
    moved = shutil.copy(gguf, tmp_path / "elsewhere.gguf")
    assert resolve(str(moved)) == folder
    assert resolve("my-tiny") == folder


def test_another_file_of_the_same_name_gets_a_name_of_its_own(gguf: Path, tmp_path: Path) -> None:
    first = resolve(str(gguf))
    tiny_gguf.write(gguf, tiny_gguf.weights(seed=1), "Q8_0")
    second = resolve(str(gguf))
    assert first != second and second.name.startswith("my-tiny-")


def test_a_damaged_import_is_made_again_while_its_file_is_there(gguf: Path) -> None:
    folder = resolve(str(gguf))
    (folder / "model.safetensors").write_bytes(b"")
    assert resolve("my-tiny") == folder
    (folder / "model.safetensors").write_bytes(b"")
    gguf.unlink()
    with pytest.raises(ModelDamaged, match="import it again"):
        resolve("my-tiny")


def test_a_folder_is_given_back_absolute_if_it_is_good(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = resolve(str(gguf))
    monkeypatch.chdir(folder.parent)
    assert resolve("my-tiny") == resolve("./my-tiny") == folder
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelDamaged, match=r"config\.json"):
        resolve("./my-tiny")


@pytest.mark.parametrize(
    "reference", ["no-such-model", "", "a/b/c", "/no/such", "./no", "~/no-such", "x" * 5000, "a\0b"]
)
def test_a_model_that_does_not_exist_is_not_found_at_once(reference: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolve(reference)
    assert "\n" not in str(caught.value)


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(ModelNotFound, match="did you mean 'demo'"):
        resolve("dmeo")


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelUnsupported, match=r"\.gguf"):
        resolve(str(tmp_path / "model.safetensors"))


def test_every_error_has_an_exit_code_of_its_own() -> None:
    kinds = ModelError.__subclasses__()
    assert len({kind.exit_code for kind in kinds} | {0, 1, 2}) == len(kinds) + 3


def test_import_list_and_rm_from_the_command_line(gguf: Path, tmp_path: Path) -> None:
    done = soloist("models", "import", str(gguf), "--name", "mine")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'cache' / 'models' / 'mine'}\n")
    assert "Importing the weights ..." in done.stderr
    [entry] = json.loads(soloist("models", "list", "--json").stdout)
    assert (entry["name"], entry["type"], entry["quantization"]) == ("mine", "llama", "8-bit")
    assert "mine" in soloist("models", "list").stdout
    assert soloist("models", "rm", "mine").returncode == 0
    assert soloist("models", "rm", "mine").returncode == ModelNotFound.exit_code
    assert json.loads(soloist("models", "list", "--json").stdout) == []


def test_a_name_that_another_model_has_is_refused(gguf: Path, tmp_path: Path) -> None:
    resolve(str(gguf))
    other = tiny_gguf.write(tmp_path / "other.gguf", tiny_gguf.weights(seed=1))
    done = soloist("models", "import", str(other), "--name", "my-tiny")
    assert done.returncode == ModelUnsupported.exit_code and "--name" in done.stderr
    assert soloist("models", "import", str(other), "--name", "demo").returncode == ModelUnsupported.exit_code
    assert soloist("models", "import", str(other), "--name", "../up").returncode == ModelUnsupported.exit_code


def test_a_damaged_model_is_listed_as_damaged(gguf: Path) -> None:
    (resolve(str(gguf)) / "config.json").unlink()
    [entry] = json.loads(soloist("models", "list", "--json").stdout)
    assert (entry["type"], entry["quantization"]) == ("damaged", "config.json is missing")


def test_a_bad_gguf_ends_with_one_line_and_its_code(gguf: Path) -> None:
    gguf.write_bytes(gguf.read_bytes()[:-5000])
    done = soloist("models", "import", str(gguf))
    assert (done.returncode, done.stdout) == (ModelDamaged.exit_code, "")
    assert done.stderr.startswith("Reading the file ...\nsoloist: ") and done.stderr.count("\n") == 2


def in_hub_cache(folder: Path, repository: str, home: Path) -> Path:
    """Put a copy of `folder` where the Hugging Face cache keeps `repository`."""
    entry = home / "hub" / ("models--" + repository.replace("/", "--"))
    snapshot = entry / "snapshots" / ("0" * 40)
    shutil.copytree(folder, snapshot)
    (entry / "refs").mkdir()
    (entry / "refs" / "main").write_text("0" * 40)
    return snapshot


def test_a_cached_hugging_face_model_needs_no_network(gguf: Path, tmp_path: Path) -> None:
    snapshot = in_hub_cache(resolve(str(gguf)), "org/tiny", tmp_path / "hf")
    done = soloist("models", "pull", "org/tiny", HF_HUB_OFFLINE="1")
    assert (done.returncode, done.stdout) == (0, f"{snapshot}\n")
    assert "org/tiny" in {entry["name"] for entry in json.loads(soloist("models", "list", "--json").stdout)}


def test_a_model_that_is_not_cached_is_unavailable_offline() -> None:
    done = soloist("models", "pull", "org/absent", HF_HUB_OFFLINE="1")
    assert done.returncode == 69 and done.stderr.count("\n") == 1 and "HF_HUB_OFFLINE" in done.stderr


@pytest.fixture
def empty_hub() -> Iterator[str]:
    """A hub that knows no repository."""

    class Nothing(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_repository_that_does_not_exist_is_not_found(empty_hub: str) -> None:
    done = soloist("models", "pull", "org/absent", HF_ENDPOINT=empty_hub)
    assert done.returncode == ModelNotFound.exit_code
    assert done.stderr.splitlines()[-1].endswith("called org/absent")


def test_a_manifest_of_another_importer_is_imported_again(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = resolve(str(gguf))
    monkeypatch.setattr(model_manifest, "IMPORTER", model_manifest.IMPORTER + 1)
    assert "another version" in str(model_manifest.damage(folder))
    assert model_manifest.damage(resolve(str(gguf))) is None
