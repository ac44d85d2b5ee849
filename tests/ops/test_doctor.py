"""The doctor: fit where all is well; where one thing is broken, that thing is named, with a remedy."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from soloist.daemon import exit_codes
from soloist.daemon.address import bind_unix
from soloist.daemon.config import Config
from soloist.executor import concrete, device
from soloist.executor.worker import Worker
from soloist.ops import doctor_access, doctor_checks, doctor_ghosts, doctor_model
from soloist.ops.doctor_finding import Finding
from soloist.ops.doctor_rounds import findings
from soloist.sampler import noise
from tiny_models import CHATML, scripted

NAMES = [
    "python", "packages", "blas", "device", "compiler", "thread", "stream", "dice", "uniforms", "generator", "cache",
    "keys", "port", "memory", "model", "tokenizer", "template", "canary",
]  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOLOIST_MODELS_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripted(tmp_path_factory.mktemp("models") / "tiny", [*(f"w{n} " for n in range(30))])


def doctor(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "soloist", "doctor", *words],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment},
    )  # fmt: skip


def test_a_healthy_machine_is_fit(folder: Path) -> None:
    done = doctor("--json", "--model", str(folder), "--port", "0")
    document = json.loads(done.stdout)
    found = {entry["name"]: entry["verdict"] for entry in document["findings"]}
    assert done.returncode == 0 and document["fit"] and document["version"], found
    assert list(found) == NAMES and "fail" not in found.values()
    assert found["canary"] == found["generator"] == "ok"
    assert all(entry["remedy"] for entry in document["findings"] if entry["verdict"] != "ok")


def test_each_thing_that_is_wrong_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = doctor(
            "--model", "/no/such", "--port", str(taken.getsockname()[1]), "--api-key-file", str(tmp_path / "none"),
            "--json", SOLOIST_MODELS_DIR=str(tmp_path / "file" / "cache"),
        )  # fmt: skip
    document = json.loads(done.stdout)
    failed = {entry["name"]: entry["remedy"] for entry in document["findings"] if entry["verdict"] == "fail"}
    assert done.returncode == 1 and not document["fit"]
    assert set(failed) == {"cache", "keys", "port", "model"} and all(failed.values())


def test_the_table_says_what_to_do_and_settings_are_read_as_serve_reads_them(tmp_path: Path) -> None:
    done = doctor("--model", "/no/such", SOLOIST_PORT="0")
    assert done.returncode == 1 and "not fit to serve: model" in done.stdout and "127.0.0.1:0 is free" in done.stdout
    done = doctor("--port", "x")
    assert done.returncode == exit_codes.CONFIGURATION and "flag --port" in done.stderr and not done.stdout


def test_a_model_that_is_not_here_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("something is fetched"))
    found = {finding.name: finding for finding in findings(Config(model="demo", port=0))}
    assert "not here yet" in found["model"].detail and "canary" not in found


def test_a_check_that_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def faint(*_: object) -> Any:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(doctor_ghosts, "uniforms", faint)
    monkeypatch.setattr(doctor_model, "text", faint)
    found = {finding.name: finding for finding in findings(Config(model=str(folder), port=0))}
    for name in ("uniforms", "tokenizer"):
        assert found[name].verdict == "fail" and "ZeroDivisionError" in found[name].detail and found[name].remedy


# -- ghosts, and mutants that bring them back ------------------------------------------------------


def keep_lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concrete, "make_concrete", lambda arrays: None)


def leave_unseeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "open_thread", lambda self: None)


def close_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "open_interval", lambda words: mx.maximum(words.astype(mx.float32), 1.0) * 2**-32)


def close_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "open_interval", lambda words: (words >> 8).astype(mx.float32) * 2**-24)


def repeat_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    real = noise.random_words
    monkeypatch.setattr(
        noise, "random_words", lambda keys, width: mx.broadcast_to(real(keys[:1], width), (len(keys), width))
    )


def lean(monkeypatch: pytest.MonkeyPatch) -> None:
    real = noise.random_words
    monkeypatch.setattr(noise, "random_words", lambda keys, width: real(keys, width) | 1 << 28)


def forget_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def words(keys: mx.array, width: int) -> mx.array:
        return mx.array(np.frombuffer(os.urandom(4 * len(keys) * width), np.uint32).reshape(len(keys), width))

    monkeypatch.setattr(noise, "random_words", words)


GHOSTS: list[tuple[Callable[[], Finding], Callable[[pytest.MonkeyPatch], None]]] = [
    (doctor_ghosts.thread, keep_lazy),
    (doctor_ghosts.stream, keep_lazy),
    (doctor_ghosts.dice, leave_unseeded),
    (doctor_ghosts.uniforms, close_above),
    (doctor_ghosts.uniforms, close_below),
    (doctor_ghosts.generator, repeat_rows),
    (doctor_ghosts.generator, lean),
    (doctor_ghosts.generator, forget_the_key),
]


@pytest.mark.parametrize(("check", "mutant"), GHOSTS, ids=lambda each: each.__name__)
def test_a_ghost_is_seen_when_it_is_back_and_only_then(
    check: Callable[[], Finding], mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check().verdict == "ok"
    mutant(monkeypatch)
    finding = check()
    assert finding.verdict == "fail" and finding.remedy


def test_another_generator_is_told_and_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    real = noise.random_words
    monkeypatch.setattr(noise, "random_words", lambda keys, width: mx.bitwise_invert(real(keys, width)))
    assert doctor_ghosts.generator().verdict == "slow"


def test_the_two_word_reference_is_the_published_one() -> None:
    """Known answers of Random123's test vectors for Threefry-2x32 with 20 rounds."""
    ones = 0xFFFFFFFF
    assert doctor_ghosts._threefry((0, 0), (0, 0)) == (0x6B200159, 0x99BA4EFE)
    assert doctor_ghosts._threefry((ones, ones), (ones, ones)) == (0x1CB996FC, 0xBB002BE7)


# -- machine, files, model -------------------------------------------------------------------------


def test_weights_are_held_against_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "total_memory", lambda: 1000)
    monkeypatch.setattr(doctor_checks, "_container_limit", lambda: 500)
    verdicts = [doctor_checks.memory(weights).verdict for weights in (None, 300, 400, 501)]
    assert verdicts == ["ok", "ok", "slow", "fail"]
    assert "container" in doctor_checks.memory(501).remedy


def test_key_files_are_for_one_user(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("alice:sk-a\n")
    config = Config(api_key_file=file)
    file.chmod(0o644)
    finding = doctor_access.keys(config)
    assert finding.verdict == "slow" and finding.remedy == f"chmod 600 {file}"
    file.chmod(0o600)
    assert doctor_access.keys(config).verdict == "ok" and "API key required" in doctor_access.keys(config).detail
    file.write_text("alice:\n")
    assert doctor_access.keys(config).verdict == "fail"


def test_a_cache_that_everybody_may_write_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    finding = doctor_access.cache(Config(cache_dir=folder))
    assert finding.verdict == "slow" and finding.remedy == f"chmod go-w {folder}"


def test_a_live_socket_is_a_taken_address(tmp_path: Path) -> None:
    path = tmp_path / "s"
    config = Config(unix_socket=path)
    assert doctor_access.port(config).verdict == "ok" and not path.exists()
    with bind_unix(path):
        assert doctor_access.port(config).verdict == "fail"


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    yield lambda **fields: scripted(tmp_path / "broken", ["a", "b"], **fields)


def test_a_model_without_an_end_and_without_a_template_works_but_is_told(broken: Callable[..., Path]) -> None:
    path = broken(template=None)
    for name in ("config.json", "tokenizer_config.json"):
        file = path / name
        stored = json.loads(file.read_text())
        stored.pop("eos_token_id", None), stored.pop("eos_token", None)
        file.write_text(json.dumps(stored))
    found, tokenizer = doctor_model.text(Config(), path)
    assert found.verdict == "slow" and tokenizer is not None
    assert doctor_model.template(tokenizer).verdict == "slow"


def test_a_template_that_raises_is_a_failure(broken: Callable[..., Path]) -> None:
    _, tokenizer = doctor_model.text(Config(), broken(template="{{ raise_exception('never') }}"))
    assert tokenizer is not None and doctor_model.template(tokenizer).verdict == "fail"


def test_a_template_without_system_messages_is_told(broken: Callable[..., Path]) -> None:
    picky = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML
    _, tokenizer = doctor_model.text(Config(), broken(template=picky))
    assert tokenizer is not None
    finding = doctor_model.template(tokenizer)
    assert finding.verdict == "ok" and "no system" in finding.detail


def test_text_that_becomes_a_control_id_is_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, tokenizer = doctor_model.text(Config(), folder)
    assert found.verdict == "ok" and tokenizer is not None
    real = type(tokenizer).encode
    monkeypatch.setattr(
        type(tokenizer), "encode", lambda self, text, *, specials=False: real(self, text, specials=True)
    )
    assert "control id" in doctor_model.text(Config(), folder)[0].detail
    monkeypatch.setattr(type(tokenizer), "encode", lambda self, text, *, specials=False: real(self, text))
    assert "does not become" in doctor_model.text(Config(), folder)[0].detail


def test_a_model_whose_sampled_path_is_broken_fails_the_canary(broken: Callable[..., Path]) -> None:
    config = Config(prefix_cache_bytes=0)
    good = broken()
    _, tokenizer = doctor_model.text(config, good)
    assert tokenizer is not None and doctor_model.canary(config, good, tokenizer).verdict == "ok"
    bad = scripted(good.parent / "poisoned", ["a"], poison={"a": float("nan"), "b": float("nan"), 0: float("nan")})
    finding = doctor_model.canary(replace(config, model=str(bad)), bad, tokenizer)
    assert finding.verdict == "fail" and finding.remedy
