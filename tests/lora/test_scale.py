"""The scale table, rule by rule."""

import math
from typing import Any

import pytest
from soloist.lora.errors import ScaleError
from soloist.lora.scale import kind_of, scale_for

MODULE = "model.layers.3.self_attn.q_proj"
PEFT = {"peft_type": "LORA", "r": 16, "lora_alpha": 32}


def mlx(**parameters: Any) -> dict[str, Any]:
    return {"fine_tune_type": "lora", "lora_parameters": parameters}


def test_the_historic_fault_stays_dead_alpha_32_rank_16_scale_2_is_2() -> None:
    scale = scale_for(mlx(alpha=32, rank=16, scale=2.0), MODULE)
    assert scale.factor == 2.0
    assert scale.rank == 16
    assert scale.source == "lora_parameters.scale 2"


@pytest.mark.parametrize("alpha", [None, 1, 16, 1000])
def test_alpha_beside_mlx_lms_scale_changes_nothing(alpha: int | None) -> None:
    assert scale_for(mlx(alpha=alpha, rank=8, scale=20.0), MODULE).factor == 20.0


@pytest.mark.parametrize(
    ("changes", "factor", "rank"),
    [
        ({}, 2.0, 16),
        ({"use_rslora": True}, 8.0, 16),
        ({"rank_pattern": {"q_proj": 4}}, 8.0, 4),
        ({"alpha_pattern": {"q_proj": 8}}, 0.5, 16),
        ({"rank_pattern": {"q_proj": 4}, "alpha_pattern": {"layers.3.self_attn.q_proj": 2}}, 0.5, 4),
        ({"rank_pattern": {r"layers\.[12]\..*q_proj": 4}}, 2.0, 16),
        ({"rank_pattern": {"k_proj": 4}, "use_rslora": True}, 8.0, 16),
        ({"rank_pattern": {"q_proj": 64}, "use_rslora": True}, 32 / math.sqrt(64), 64),
        ({"lora_alpha": 24.0}, 1.5, 16),
    ],
)
def test_peft_divides_alpha_by_the_rank_or_its_root_with_each_modules_own_values(
    changes: dict[str, Any], factor: float, rank: int
) -> None:
    scale = scale_for(PEFT | changes, MODULE)
    assert scale.factor == pytest.approx(factor)
    assert scale.rank == rank


def test_a_pattern_matches_whole_names_at_the_end_only() -> None:
    assert scale_for(PEFT | {"rank_pattern": {"proj": 4}}, MODULE).rank == 16


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (PEFT | mlx(scale=2.0), "lora_parameters"),
        ({"base_model_name_or_path": "x"}, "neither"),
        (mlx(alpha=32, rank=16), "scale"),
        (mlx(scale=2.0, lora_alpha=4), "lora_parameters.lora_alpha"),
        ({"lora_parameters": None}, "lora_parameters"),
        (mlx(scale="2"), "scale"),
        (mlx(scale=float("nan")), "scale"),
        (mlx(scale=0), "scale"),
        (mlx(scale=True), "scale"),
        (mlx(scale=2.0, rank=0), "rank"),
        ({"peft_type": "LORA", "r": 16}, "lora_alpha"),
        ({"peft_type": "LORA", "lora_alpha": 16}, "r"),
        (PEFT | {"r": 0}, "r"),
        (PEFT | {"use_rslora": "yes"}, "use_rslora"),
        (PEFT | {"rank_pattern": {"(": 4}}, "rank_pattern"),
    ],
)
def test_a_configuration_that_does_not_say_one_factor_is_refused_by_field(config: dict[str, Any], named: str) -> None:
    with pytest.raises(ScaleError) as refusal:
        scale_for(config, MODULE)
    assert named in refusal.value.message


def test_the_kind_is_told_by_the_fields() -> None:
    assert kind_of(mlx(scale=1.0)) == "mlx-lm"
    assert kind_of(PEFT) == "peft"
