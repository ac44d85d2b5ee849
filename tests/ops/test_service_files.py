"""Service files: whole paths, an environment of their own, restarts after crashes only; and that they really start."""

import os
import plistlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from instances import PROGRAM, end, free_ports, ready, until
from soloist.daemon import exit_codes
from soloist.ops.service_plist import THROTTLE_S, render_plist
from soloist.ops.service_spec import HOPELESS, Service, ServiceError, absolute, describe
from soloist.ops.service_unit import quoted, render_unit
from tiny_models import ABCD, scripted

MINIMAL = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}  # what launchd gives a job
ODD = 'model & <co> $x 100% "q"'


def serving(model: Path, port: int, environment: Mapping[str, str] = MINIMAL, extra: tuple[str, ...] = ()) -> Service:
    return describe("serve", ["serve", "--model", str(model), "--port", str(port)], extra, environment, 15)


def job(service: Service) -> dict[str, object]:
    return plistlib.loads(render_plist(service))


def run_as_launchd(found: Mapping[str, object], home: Path) -> "subprocess.Popen[bytes]":
    """The job's arguments under `env -i` from the folder `/`, with the job's own environment and nothing else."""
    environment = {**MINIMAL, **found["EnvironmentVariables"], "HOME": str(home)}  # type: ignore[dict-item]
    return subprocess.Popen(found["ProgramArguments"], env=environment, cwd="/", stderr=subprocess.PIPE)  # type: ignore[call-overload]


def test_a_job_with_odd_paths_starts_and_answers_with_nothing_but_its_own_environment(tmp_path: Path) -> None:
    scripted(tmp_path / ODD, dist=ABCD)
    (port,) = free_ports(1)
    process = run_as_launchd(job(serving(tmp_path / ODD, port)), tmp_path)
    assert process.stderr is not None
    with process.stderr:
        until(lambda: ready(port), "the job is ready")
        assert end(process) == exit_codes.CLEAN


def test_a_job_that_cannot_start_says_so_each_time_with_a_hopeless_code(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    found = job(serving(tmp_path / "no such model", port))
    for _ in range(2):
        process = run_as_launchd(found, tmp_path)
        _, said = process.communicate(timeout=20)
        assert process.returncode in HOPELESS
        assert b"no such model" in said
    assert found["KeepAlive"] == {"SuccessfulExit": False}
    assert found["ThrottleInterval"] == THROTTLE_S >= 30


def test_a_job_is_complete(tmp_path: Path) -> None:
    environment = {
        **MINIMAL,
        "HF_HOME": "/data/a b",
        "SOLOIST_PORT": "1",
        "SOLOIST_API_KEY": "secret",
        "OTHER": "x",
        "W": "w",
    }
    service = serving(tmp_path, 1, environment, ("W", "V=a=b"))
    found = job(service)
    variables = found["EnvironmentVariables"]
    assert isinstance(variables, dict)
    assert variables["HF_HOME"] == "/data/a b"
    assert (variables["W"], variables["V"], variables["SOLOIST_PORT"]) == ("w", "a=b", "1")
    assert "/usr/bin" in variables["PATH"].split(":")
    assert not {"OTHER", "SOLOIST_API_KEY"} & set(variables)
    assert b"secret" not in render_plist(service)
    words = found["ProgramArguments"]
    assert isinstance(words, list)
    assert os.path.isabs(words[0])
    assert "-u" in words and variables["PYTHONUNBUFFERED"] == "1"
    assert found["ExitTimeOut"] == 15
    assert os.path.isabs(str(found["StandardErrorPath"])) and os.path.isabs(str(found["StandardOutPath"]))


def test_relative_paths_are_made_whole_and_names_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("demo", "mine", "org"):
        (tmp_path / name).mkdir()
    words = ["serve", "--model", "mine", "--adapter=a=./ad", "--served-model-name", "mine", "--config", "c.toml",
             "--api-key-file=keys", "--draft-model", "org/name"]  # fmt: skip
    assert list(absolute(words)) == [
        "serve", "--model", f"{tmp_path}/mine", f"--adapter=a={tmp_path}/ad", "--served-model-name", "mine",
        "--config", f"{tmp_path}/c.toml", f"--api-key-file={tmp_path}/keys", "--draft-model", "org/name",
    ]  # fmt: skip
    assert list(absolute(["serve", "--model", "demo"])) == ["serve", "--model", "demo"]
    assert list(absolute(["council", "up", "council.toml"])) == ["council", "up", f"{tmp_path}/council.toml"]


@pytest.mark.parametrize(
    ("name", "words", "extra"), [("a b", ["serve"], ()), ("a", ["x\ny"], ()), ("a", ["serve"], ("UNSET",))]
)
def test_what_cannot_be_written_is_refused(name: str, words: list[str], extra: tuple[str, ...]) -> None:
    with pytest.raises(ServiceError):
        describe(name, words, extra, MINIMAL, 15)


def complaints(unit: str, run_as: str | None, folder: Path) -> list[str]:
    """What systemd says of a unit."""
    file = folder / "soloist-serve.service"
    file.write_text(unit)
    done = subprocess.run(
        ["systemd-analyze", "--system" if run_as else "--user", "verify", "--man=no", str(file)],
        capture_output=True, text=True, check=False, env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "soloist" in line]
    return said or [f"exit code {done.returncode}"] * bool(done.returncode)


@pytest.mark.parametrize("run_as", [None, "root"])
def test_systemd_accepts_the_unit_and_would_not_accept_any(tmp_path: Path, run_as: str | None) -> None:
    unit = render_unit(serving(tmp_path / ODD, 1), run_as=run_as, notifies=True)
    assert complaints(unit, run_as, tmp_path) == []
    for old, new in (("WatchdogSec=120", "WatchdogSec=often"), ('ExecStart="/', 'ExecStart="'), ("UMask", "Umask")):
        assert old in unit
        assert complaints(unit.replace(old, new), run_as, tmp_path)


def test_the_unit_is_watched_and_not_started_again_when_that_is_hopeless(tmp_path: Path) -> None:
    lines = render_unit(serving(tmp_path, 1), run_as=None, notifies=True).splitlines()
    assert {"Type=notify", "NotifyAccess=main", "WatchdogSec=120", "Restart=on-failure", "NoNewPrivileges=yes"} <= set(
        lines
    )
    (prevented,) = [line for line in lines if line.startswith("RestartPreventExitStatus=")]
    codes = set(map(int, prevented.partition("=")[2].split()))
    assert {exit_codes.CONFIGURATION, exit_codes.USAGE, exit_codes.MODEL_FAILED, 65, 66, 67} <= codes
    assert not {exit_codes.CLEAN, exit_codes.EXECUTOR_HUNG, exit_codes.PORT_TAKEN} & codes
    assert "Type=exec" in render_unit(serving(tmp_path, 1), run_as="root", notifies=False)


def test_words_are_quoted_for_systemd() -> None:
    assert quoted('a "b" \\ 100% $x') == '"a \\"b\\" \\\\ 100%% $$x"'


def soloist(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip


FAKE = """#!/bin/sh
echo "$(basename "$0") $*" >> {log}
case "$*" in *print*) echo "state = running";; *bootout*) exit 3;; esac
"""


@pytest.mark.parametrize(
    ("supervisor", "file"),
    [
        ("launchd", "Library/LaunchAgents/local.soloist.serve.plist"),
        ("systemd", ".config/systemd/user/soloist-serve.service"),
    ],
)
def test_a_service_is_installed_asked_after_and_removed_as_often_as_one_likes(
    tmp_path: Path, supervisor: str, file: str
) -> None:
    home, log = tmp_path / "home of <me>", tmp_path / "calls"
    home.mkdir()
    for name in ("launchctl", "systemctl"):
        (tmp_path / name).write_text(FAKE.format(log=log))
        (tmp_path / name).chmod(0o755)
    variables = {"HOME": str(home), "PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_CONFIG_HOME": ""}

    def act(*words: str) -> str:
        log.write_text("")
        done = soloist("service", words[0], "--supervisor", supervisor, *words[1:], **variables)
        assert done.returncode == 0, done.stderr
        return log.read_text()

    first = act("install", "--", "serve", "--port", "3999")
    assert (home / file).exists()
    assert "bootstrap gui/" in first or "restart --no-block soloist-serve.service" in first
    before = (home / file).read_bytes()
    again = act("install", "--", "serve", "--port", "3999")
    assert (home / file).read_bytes() == before
    assert "bootstrap" not in again and " restart " not in again
    assert act("status")
    other = act("install", "--", "serve", "--port", "4000")
    assert "bootstrap gui/" in other or "restart --no-block soloist-serve.service" in other
    act("uninstall")
    act("uninstall")
    assert not (home / file).exists()


def test_printing_changes_nothing_and_a_wrong_command_is_refused_before_it_is_installed(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    printed = soloist("service", "install", "--print", "--supervisor", "launchd", "--", "--port", "1", **home)
    assert plistlib.loads(printed.stdout.encode())["ProgramArguments"][-3:] == ["serve", "--port", "1"]
    assert list(tmp_path.iterdir()) == []
    wrong = soloist("service", "install", "--", "serve", "--host", "0.0.0.0", **home)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (exit_codes.CONFIGURATION, 1)
    assert soloist("service", "install", "--", "models", "list", **home).returncode == 1
