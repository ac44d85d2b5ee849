"""`soloist lora`, as a user calls it, on a tiny model with an adapter that mlx-lm trained in a second."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from adapter_files import QUERY, VALUE, Factors, draw, layered, weights_of, write_mlx
from mlx_lm.utils import load_model
from soloist.ops.lora_command import add_parser
from soloist.ops.lora_gate import Score, verdict
from tiny_models import LLAMA, random_model
from trained_adapter import train

QUESTIONS = [("abc", "xyz"), ("hello", "world"), ("one", "two")]


class Lines:
    """A dataset for mlx-lm's trainer: byte ids, the loss on the answer only."""

    def __len__(self) -> int:
        return len(QUESTIONS)

    def __getitem__(self, index: int) -> Any:
        return QUESTIONS[index]

    def process(self, line: tuple[str, str]) -> tuple[list[int], int]:
        prompt, answer = line
        return list((prompt + answer).encode()), len(prompt)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("base") / "model", LLAMA | {"num_hidden_layers": 2}, scale=0.1)


@pytest.fixture(scope="module")
def trained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "adapter"
    return train(load_model(base)[0], Lines(), folder, num_layers=2, iters=40, batch_size=3, learning_rate=5e-3)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    lines = [json.dumps({"prompt": prompt, "answer": answer}) for prompt, answer in QUESTIONS]
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(lines) + "\n\n")
    return path


def soloist(*words: object) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    args = parser.parse_args(["lora", *map(str, words)])
    code: int = args.run(args)
    return code


def test_inspect_tells_format_rank_targets_and_where_the_factor_comes_from(
    trained: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert soloist("inspect", trained, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["format"], found["ranks"], found["factors"]) == ("mlx-lm lora", [8], [10.0])
    assert found["factor_from"] == ["lora_parameters.scale 10"]
    assert found["targets"] == ["down_proj", "q_proj", "v_proj"]
    assert "if_merged" not in found
    assert soloist("inspect", trained, "--model", base, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["match"] == "matched 6 of 6 pairs"
    assert found["if_merged"]["median_strength"] == pytest.approx(1.0, abs=1e-3)
    assert soloist("inspect", trained, "--model", base) == 0
    assert "if merged: worst module" in capsys.readouterr().out


def test_inspect_refuses_an_adapter_of_another_model_by_name(
    base: Path, bases: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_mlx(tmp_path / "other", draw(weights_of(bases("llama")), layered(QUERY)))
    assert soloist("inspect", folder, "--model", base) == 65
    assert "model.layers.2.self_attn.q_proj" in capsys.readouterr().err
    assert soloist("inspect", tmp_path / "nothing") == 66
    assert "no adapter folder" in capsys.readouterr().err


def test_merge_writes_a_folder_that_says_what_strength_it_has(
    trained: Path, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert soloist("merge", base, trained, tmp_path / "out") == 0
    out = capsys.readouterr().out
    assert "merged 6 of 6 pairs" in out and "effective scale 10" in out
    receipt = json.loads((tmp_path / "out" / "merge_receipt.json").read_text())
    assert receipt["effective_scale"] == pytest.approx(10.0, rel=1e-3)
    assert len(receipt["modules"]) == 6 and len(receipt["adapter_sha256"]) == 64
    load_model(tmp_path / "out")
    assert soloist("merge", base, trained, tmp_path / "out") == 65
    assert "not empty" in capsys.readouterr().err


def test_a_merge_that_quantisation_would_swallow_exits_1_and_keep_dense_auto_is_the_remedy(
    bases: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = draw(weights_of(bases("llama")), layered(VALUE, layers=[1, 2]))
    weak = Factors({name: (a, b * 1e-4) for name, (a, b) in drawn.modules.items()})
    folder = write_mlx(tmp_path / "weak", weak)
    assert soloist("merge", bases("llama4"), folder, tmp_path / "out") == 1
    assert "--keep-dense auto" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert soloist("merge", bases("llama4"), folder, tmp_path / "out", "--keep-dense", "auto") == 0
    assert "kept unquantised: 2 modules" in capsys.readouterr().out


def test_the_gate_exits_0_for_an_adapter_that_learned_and_its_receipt_names_all_that_was_used(
    trained: Path, base: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert soloist("gate", base, trained, "--prompts", prompts, "--receipt", tmp_path / "receipt.json") == 0
    assert "gate passed: 3 of 3" in capsys.readouterr().err
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    assert receipt["passed"] and receipt["win_rate"] == 1.0
    assert receipt["adapter_mean"] > receipt["base_mean"]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(receipt["base"])
    assert set(receipt["adapter"]) == {"adapter_config.json", "adapters.safetensors"}
    assert len(receipt["prompts"]["prompts.jsonl"]) == 64
    assert [one["line"] for one in receipt["scores"]] == [1, 2, 3]


def test_the_gate_exits_1_for_an_adapter_that_makes_the_answers_less_likely(
    trained: Path, base: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((trained / "adapter_config.json").read_text())
    config["lora_parameters"]["scale"] *= -1
    harmful = tmp_path / "harmful"
    harmful.mkdir()
    (harmful / "adapter_config.json").write_text(json.dumps(config))
    (harmful / "adapters.safetensors").symlink_to(trained / "adapters.safetensors")
    assert soloist("gate", base, harmful, "--prompts", prompts) == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False


@pytest.mark.parametrize(
    ("line", "named"),
    [("{", "line 2"), ('{"prompt": "a"}', "no answer"), ('{"prompt": "a", "answer": ""}', "empty"), ("[]", "line 2")],
)
def test_a_prompts_file_that_cannot_be_used_is_refused_by_line(
    line: str, named: str, trained: Path, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a", "answer": "b"}\n' + line)
    assert soloist("gate", base, trained, "--prompts", path) == 66
    assert named in capsys.readouterr().err


def test_the_threshold_counts_wins_and_a_lower_mean_fails_whatever_the_count() -> None:
    wins = [Score(i, 1, -1.0, -0.9) for i in range(7)]
    losses = [Score(i, 1, -1.0, -1.1) for i in range(3)]
    assert verdict(wins + losses, 0.70)["passed"]
    assert not verdict(wins + losses, 0.71)["passed"]
    assert not verdict([*wins, Score(9, 1, -1.0, -50.0)], 0.70)["passed"]
    ties = [Score(i, 1, -1.0, -1.0) for i in range(4)]
    assert not verdict(ties, 0.0)["passed"]
