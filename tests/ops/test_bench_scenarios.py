"""Every scenario, once, against a real daemon with a tiny model: complete figures, and no word about how fast."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from http_server import serving
from soloist.ops import bench_command
from soloist.ops.bench_plot import write_plot
from soloist.ops.bench_report import document, print_tables, write_json
from soloist.ops.bench_run import SCENARIOS, Run, Wish, carry_out
from soloist.ops.bench_servers import ServerFault, attached, soloist
from soloist.ops.bench_sizes import QUICK
from soloist.ops.bench_stats import Figures
from tiny_models import scripted

TINY = replace(
    QUICK,
    levels=(1, 8),
    seeded_levels=(8,),
    decode_tokens=8,
    stream_tokens=8,
    prefix=120,
    join_prompt=100,
    join4_prompt=100,
    abandoned_prompt=3500,
    next_prompt=60,
    leave_after_s=0.0,
    settle=3,
    health_tokens=8,
    idle_s=0.05,
    flood_streams=4,
    flood_tokens=20,
)
PROMISED = {
    "decode_vs_bare_loop", "throughput8_vs_bare_loop8", "throughput8_vs_mlx_lm", "throughput8_seeded_vs_mlx_lm",
    "throughput8_mixed_vs_uniform", "ttft_warm_vs_cold", "ttft_restart_vs_cold", "join_gap_vs_median_itl",
    "join_gap_vs_mlx_lm", "drop_in_prefill_next_ttft_vs_idle", "shared_prefix4_vs_one_cold",
}  # fmt: skip


NAMES = list(dict.fromkeys(scenario.name for scenario in SCENARIOS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recites a few words for ever, so that every stream is as long as it was asked to be."""
    return scripted(tmp_path_factory.mktemp("bench") / "loop", ["w0 ", "w1 ", "w2 ", "w3 "], after_last="w0 ")


@pytest.fixture(scope="module")
def whole(folder: Path) -> Run:
    said: list[str] = []
    run = carry_out(Wish(TINY, seed=1, folder=folder), said.append)
    assert said[-len(NAMES) :] == NAMES
    return run


def test_every_scenario_measures_a_tiny_model(whole: Run) -> None:
    # A tiny prefill may be over before the client has left; and the disk tier is an option of the daemon.
    assert set(whole.not_measured) <= {"drop", "restart"}, whole.not_measured
    measured = {sample.scenario for sample in whole.samples}
    assert measured | set(whole.not_measured) == {scenario.name for scenario in SCENARIOS}
    assert all(sample.value >= 0 for sample in whole.samples)


def test_the_servers_greedy_tokens_are_those_of_the_bare_loop(whole: Run) -> None:
    assert Figures(whole.samples).summary("soloist", "decode_greedy_agreement_ratio").low == 1


def test_a_prompt_is_about_as_long_as_it_was_asked_to_be(whole: Run) -> None:
    assert 3 < whole.tokens_a_word < 8  # the tiny tokenizer counts bytes


def test_the_json_is_complete(whole: Run, tmp_path: Path) -> None:
    write_json(whole, tmp_path / "bench.json")
    told = json.loads((tmp_path / "bench.json").read_text())
    assert set(told["ratios"]) >= PROMISED
    assert told["ratios"]["decode_vs_bare_loop"] > 0
    assert told["ratios"]["throughput8_vs_mlx_lm"] is None
    assert set(told["versions"]) >= {"python", "mlx", "mlx-lm"}
    assert told["device"] and told["blas"]
    assert all(told["servers"][name]["pid"] > 0 for name in ("soloist", "bare-loop", "load generator"))
    assert {"scenario", "server", "metric", "round", "value"} == set(told["samples"][0])


def test_the_tables_name_what_decides(whole: Run, capsys: pytest.CaptureFixture[str]) -> None:
    print_tables(whole)
    shown = capsys.readouterr().out
    assert "decode_vs_bare_loop" in shown and "front_tok_s" in shown and "throughput8_tok_s" in shown


def test_the_plot_is_a_drawing_of_all_levels(whole: Run, tmp_path: Path) -> None:
    from xml.etree import ElementTree

    write_plot(Figures(whole.samples), TINY.levels, tmp_path / "plot.svg")
    drawing = ElementTree.parse(tmp_path / "plot.svg").getroot()
    assert drawing.tag.endswith("svg")
    assert len(drawing.findall(".//{*}polyline")) == 3
    assert len(drawing.findall(".//{*}circle")) == 3 * len(TINY.levels)


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Any]:
    with serving(folder) as server:
        yield server


def test_a_server_that_runs_already_is_attached_to_by_its_base_url(running: Any, folder: Path) -> None:
    wish = Wish(TINY, seed=2, attach=(f"mine=http://127.0.0.1:{running.port}/v1",), only=("ttft", "memory"))
    run = carry_out(wish, lambda said: None)
    assert run.subject == "mine"
    assert {sample.metric for sample in run.samples} >= {"ttft_cold_ms", "ttft_warm_ms"}
    assert set(run.not_measured) == {"memory"}
    assert document(run)["servers"]["mine"]["model"] == folder.name


def test_servers_are_measured_in_turn(running: Any) -> None:
    url = f"http://127.0.0.1:{running.port}"
    sizes = replace(TINY, rounds=2)
    run = carry_out(Wish(sizes, 3, attach=(f"a={url}", f"b={url}"), only=("ttft",)), lambda said: None)
    order = [sample.server for sample in run.samples if sample.metric == "ttft_cold_ms"]
    assert order == ["a", "b", "a", "b"]
    assert document(run)["ratios"]["ttft_cold_vs_b"] > 0


def test_two_servers_of_one_name_are_refused(running: Any) -> None:
    url = f"a=http://127.0.0.1:{running.port}"
    with pytest.raises(ServerFault, match="two servers are called 'a'"):
        carry_out(Wish(TINY, 3, attach=(url, url)), lambda said: None)


def test_nothing_that_answers_is_one_clear_line() -> None:
    with pytest.raises(ServerFault, match=r"attached at http://127\.0\.0\.1:1/v1/models"):
        attached("http://127.0.0.1:1", None, None)


def test_a_server_that_cannot_start_says_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ServerFault, match="soloist ended with code"):
        soloist(tmp_path / "empty", 1).start()


def command(*words: str) -> int:
    parser = argparse.ArgumentParser()
    bench_command.add_parser(parser.add_subparsers())
    arguments = parser.parse_args(["bench", *words])
    code: int = arguments.run(arguments)
    return code


def test_the_command_writes_what_it_was_asked_for(
    running: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--json", str(tmp_path / "bench.json"), "--plot", str(tmp_path / "bench.svg")]
    url = f"http://127.0.0.1:{running.port}"
    assert command("--quick", "--attach", url, "--only", "throughput", "--seed", "7", *files) == 0
    assert "throughput8_tok_s" in capsys.readouterr().out
    told = json.loads((tmp_path / "bench.json").read_text())
    assert told["seed"] == 7 and told["subject"] == "attached"
    assert "<svg" in (tmp_path / "bench.svg").read_text()


def test_the_command_says_in_one_line_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--attach", "http://127.0.0.1:1") == 1
    assert command("--model", "no-such-model") != 0
    shown = capsys.readouterr().err.strip().splitlines()
    assert len(shown) == 2 and all(line.startswith("soloist: ") for line in shown)
