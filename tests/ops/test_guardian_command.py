"""`soloist guardian` from the outside: one round, a file of settings, and what it says when it cannot start."""

import subprocess
import sys
from pathlib import Path

from fake_instances import fakes
from instances import PROGRAM, free_ports


def guardian(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "guardian", *words], capture_output=True, text=True, check=False
    )


def test_one_round_prints_each_instance_and_tells_by_its_exit_code(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with fakes("a", "b") as (well, hollow):
        hollow.mode = "hollow"
        file = tmp_path / "guardian.toml"
        watch = [
            f"well=http://127.0.0.1:{well.port}",
            f"hollow=http://127.0.0.1:{hollow.port}",
            f"down=http://127.0.0.1:{port}",
        ]
        file.write_text(f'watch = {watch!r}\ndeep-within = 2\npatrol_log = "{tmp_path / "log"}"\n')
        done = guardian("--config", str(file), "--once")
        assert done.returncode == 1
        assert [line.split(":")[0:2] for line in done.stdout.splitlines()] == [
            ["well", " well"],
            ["hollow", " hollow the completion probe got 200 with nothing inside"],
            ["down", " down nothing listens, or the connection broke"],
        ]
        assert guardian("--watch", f"http://127.0.0.1:{well.port}", "--once").returncode == 0


def test_a_wrong_setting_ends_it_with_one_line_and_its_own_code(tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text('watch = ["http://127.0.0.1:1"]\nevry = 3\n')
    for words in (
        ["--once"],
        ["--watch=nonsense"],
        ["--watch=http://x", "--every=soon"],
        ["--config", str(tmp_path / "g.toml")],
    ):
        done = guardian(*words)
        assert (done.returncode, done.stderr.count("\n")) == (78, 1)
