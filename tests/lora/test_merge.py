"""Merging: the strength that is reported is the strength that is served, and too little of it is refused."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from adapter_files import DOWN, QUERY, VALUE, Factors, draw, layered, merged, weights_of, write_mlx
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model
from soloist.lora.errors import FormatError, MisfitError, StrengthError
from soloist.lora.merge import merge_adapter, plan_merge
from soloist.lora.merged_folder import write_merged
from soloist.lora.modules import dense_weight, places
from soloist.lora.strength import measure

from .conftest import logprobs, reference

Bases = Callable[[str], Path]


def scaled(factors: Factors, size: float) -> Factors:
    return Factors({name: (a, (b * size).astype(np.float32)) for name, (a, b) in factors.modules.items()})


def dense_weights(model: Any) -> dict[str, Any]:
    found = {name: place.module for name, place in places(model).items() if "weight" in place.module}
    return {f"{name}.weight": np.array(dense_weight(module)) for name, module in found.items()}


@pytest.fixture
def adapter(bases: Bases, tmp_path: Path) -> Path:
    return write_mlx(tmp_path / "adapter", draw(weights_of(bases("llama")), layered(QUERY, VALUE, DOWN)), 2.0)


def test_measured_strength_is_the_projection_on_the_trained_change() -> None:
    random = np.random.default_rng(1)
    before, change = (mx.array(random.normal(size=(32, 32)).astype(np.float32)) for _ in range(2))
    for strength in (0.0, 0.5, 1.0, 2.0):
        measured, residual = measure(before, before + strength * change, before + change)
        assert measured == pytest.approx(strength, abs=1e-5)
        assert residual == pytest.approx(abs(strength - 1), abs=1e-5)
    assert measure(before, before, before) == (None, None)


def test_strength_is_right_for_matrices_of_more_than_2_to_the_24_numbers() -> None:
    before, meant = mx.zeros((1 << 15, 1 << 10)), mx.ones((1 << 15, 1 << 10))
    assert measure(before, 0.75 * meant, meant) == pytest.approx((0.75, 0.25), abs=1e-6)


def test_a_quantised_layer_is_requantised_in_its_own_way_and_its_strength_is_that_of_the_served_weights(
    bases: Bases, adapter: Path
) -> None:
    model, _ = load_model(bases("llama4"))
    before = dense_weights(model)
    report = merge_adapter(model, adapter)
    after = dense_weights(model)
    assert len(report.parts) == 12 and report.summary == "merged 12 of 12 pairs"
    factors = draw(weights_of(bases("llama")), layered(QUERY, VALUE, DOWN))
    for part in report.parts:
        layer = places(model)[part.module].module
        assert isinstance(layer, nn.QuantizedLinear)
        assert (layer.group_size, layer.bits, layer.mode) == (32, 4, "affine")
        key = f"{part.module}.weight"
        meant = merged(before, factors, 2.0)[key] - before[key]
        served = after[key] - before[key]
        assert part.strength == pytest.approx(float((served * meant).sum() / (meant * meant).sum()), abs=1e-4)
        assert part.off < 0.05
    assert report.effective_scale == pytest.approx(2.0, rel=0.05)


def test_a_change_that_quantisation_swallows_is_refused_with_the_figure_and_the_remedies(
    bases: Bases, tmp_path: Path
) -> None:
    model, _ = load_model(bases("llama4"))
    before = dense_weights(model)
    weak = scaled(draw(weights_of(bases("llama")), layered(QUERY, VALUE)), 1e-4)
    with pytest.raises(StrengthError) as refusal:
        merge_adapter(model, write_mlx(tmp_path / "weak", weak))
    for word in ("unmerged", "--keep-dense auto", "more bits", refusal.value.keys[0]):
        assert word in refusal.value.message
    after = dense_weights(model)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_keep_dense_auto_unquantises_just_the_modules_that_need_it(bases: Bases, tmp_path: Path) -> None:
    model, _ = load_model(bases("llama4"))
    strong, weak = (
        draw(weights_of(bases("llama")), layered(*targets)) for targets in ((QUERY,), (VALUE,))
    )  # fmt: skip
    both = Factors({**strong.modules, **scaled(weak, 1e-4).modules})
    report = merge_adapter(model, write_mlx(tmp_path / "both", both), keep_dense="auto")
    assert set(report.kept_dense) == set(layered(VALUE))
    assert report.worst is not None and report.worst.off < 0.05
    assert type(model.layers[0].self_attn.v_proj) is nn.Linear
    assert type(model.layers[0].self_attn.q_proj) is nn.QuantizedLinear


def test_modules_named_to_be_kept_dense_carry_the_change_exactly(bases: Bases, adapter: Path, tmp_path: Path) -> None:
    model, _ = load_model(bases("llama4"))
    dense = dense_weights(model)
    factors = draw(weights_of(bases("llama")), layered(QUERY, VALUE, DOWN))
    with pytest.raises(MisfitError, match="k_proj"):
        merge_adapter(model, adapter, keep_dense=["model.layers.0.self_attn.k_proj"])
    merge_adapter(model, adapter, keep_dense=list(factors.modules))
    expected = reference(bases("llama"), merged(dense, factors, 2.0), tmp_path / "reference")
    assert np.abs(logprobs(model) - expected).max() < 1e-3


@pytest.mark.parametrize("keep_dense", ["never", "auto"])
@pytest.mark.parametrize("base", ["llama", "llama4"])
def test_a_merged_folder_loads_in_mlx_lm_and_gives_the_merged_models_answers(
    base: str, keep_dense: Any, bases: Bases, tmp_path: Path
) -> None:
    model, config = load_model(bases(base))
    weak = scaled(draw(weights_of(bases("llama")), layered(VALUE)), 1e-4 if keep_dense == "auto" else 1.0)
    both = Factors({**draw(weights_of(bases("llama")), [*layered(QUERY), "lm_head"]).modules, **weak.modules})
    report = merge_adapter(model, write_mlx(tmp_path / "both", both), keep_dense=keep_dense)
    write_merged(model, bases(base), tmp_path / "out", config, report.kept_dense, {"adapter": "both"})
    again, config = load_model(tmp_path / "out")
    assert np.array_equal(logprobs(again), logprobs(model))
    assert bool(report.kept_dense) == (base == "llama4" and keep_dense == "auto")
    for name in report.kept_dense:
        assert config["quantization"][name] is False
    assert json.loads((tmp_path / "out" / "merge_receipt.json").read_text()) == {"adapter": "both"}
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (bases(base) / "tokenizer.json").read_bytes()
    with pytest.raises(FormatError, match="not empty"):
        write_merged(model, bases(base), tmp_path / "out", config, (), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both", "out"]


def test_merged_weights_are_concrete_and_survive_the_thread_that_made_them(bases: Bases, adapter: Path) -> None:
    kept: list[Any] = []

    def merge_and_end() -> None:
        mx.set_default_stream(mx.new_stream(mx.default_device()))
        model, _ = load_model(bases("llama4"))
        merge_adapter(model, adapter)
        kept.append(model)
        mx.clear_streams()

    thread = threading.Thread(target=merge_and_end)
    thread.start()
    thread.join()
    for _, array in tree_flatten(kept[0].parameters()):
        assert np.array(array.view(mx.uint8)).size == array.nbytes


def test_an_adapter_that_was_never_trained_is_refused(bases: Bases, tmp_path: Path) -> None:
    model, _ = load_model(bases("llama"))
    untrained = scaled(draw(weights_of(bases("llama")), layered(QUERY)), 0.0)
    with pytest.raises(MisfitError, match="changes nothing"):
        merge_adapter(model, write_mlx(tmp_path / "zero", untrained))


def test_planning_a_merge_changes_nothing_and_reports_progress(bases: Bases, adapter: Path) -> None:
    model, _ = load_model(bases("llama"))
    before, seen = logprobs(model), []
    _, report = plan_merge(model, adapter, on_module=lambda done, total: seen.append((done, total)))
    assert np.array_equal(logprobs(model), before)
    assert seen == [(number, 12) for number in range(1, 13)]
    assert report.median == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("mode", "group", "bits"), [("mxfp4", 32, 4), ("mxfp8", 32, 8), ("affine", 64, 8)])
def test_other_quantisation_modes_are_merged_in_their_own_mode(
    mode: str, group: int, bits: int, bases: Bases, adapter: Path
) -> None:
    model, _ = load_model(bases("llama"))
    nn.quantize(model, group_size=group, bits=bits, mode=mode)
    report = merge_adapter(model, adapter, threshold=0.5)
    layer = model.layers[0].self_attn.q_proj
    assert (layer.mode, layer.group_size, layer.bits) == (mode, group, bits)
    assert report.median == pytest.approx(1.0, abs=0.1)
