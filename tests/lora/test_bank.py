"""Rows with different adapters share a batch, and loading and unloading touches nobody else."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from adapter_cases import CASES, Case
from adapter_files import DOWN, QUERY, VALUE, draw, layered, merged, weights_of, write_mlx, write_peft
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model
from soloist.lora.bank import AdapterBank
from soloist.lora.errors import AdapterError, ServingError, UnknownAdapter
from soloist.lora.modules import dense_weight, places

from .conftest import IDS, logprobs, reference

Bases = Callable[[str], Path]
MIXED = {
    "llama": ["mlx_lora", "mlx_dora", "mlx_full", "mlx_embedding_and_head", "peft_rslora", "peft_modules_to_save"],
    "biased": ["peft_biases", "peft_bias_of_lora_b", "mlx_dora_beside_biases"],
    "tied": ["mlx_tied_embedding", "mlx_dora_tied_embedding", "peft_tied_embedding"],
    "mixture": ["mlx_experts", "mlx_full_mixture", "peft_experts"],
}


def loaded(base: Path, names: list[str], folder: Path) -> tuple[Any, AdapterBank]:
    """A model with these cases' adapters, each drawn from its own seed-free builder."""
    model, _ = load_model(base)
    bank = AdapterBank(model)
    for case in CASES:
        if case.name in names:
            case.build(folder / case.name, weights_of(base))
            bank.load(case.name, folder / case.name)
    return model, bank


def prompts(rows: int, length: int) -> Any:
    return mx.array((np.arange(rows * length).reshape(rows, length) * 37 + 11) % 250)


@pytest.mark.parametrize("base", MIXED)
@pytest.mark.parametrize("length", [1, 24])
def test_rows_of_a_mixed_batch_come_out_as_each_would_alone(
    base: str, length: int, bases: Bases, tmp_path: Path
) -> None:
    names: list[str | None] = [*MIXED[base], None]
    model, bank = loaded(bases(base), MIXED[base], tmp_path)
    order = [names[i] for i in (0, 1, 2, -1, 1, 0, *range(len(names)))]
    ids = prompts(len(order), length)
    bank.select([bank.slot(name) for name in order])
    together = np.array(model(ids))
    for row, name in enumerate(order):
        bank.select([bank.slot(name)])
        assert np.abs(together[row] - np.array(model(ids[row : row + 1]))[0]).max() < 1e-3


@pytest.mark.parametrize("base", MIXED)
def test_rows_without_an_adapter_keep_the_very_bits_that_the_base_model_gives_the_same_batch(
    base: str, bases: Bases, tmp_path: Path
) -> None:
    model, bank = loaded(bases(base), MIXED[base], tmp_path)
    ids = prompts(4, 6)
    bank.select([0, 0, 0, 0])
    plain = np.array(model(ids))
    bank.select([0, bank.slot(MIXED[base][0]), 0, bank.slot(MIXED[base][1])])
    mixed = np.array(model(ids))
    if base == "mixture":  # groups of rows go through the experts apart: other shapes, other rounding
        assert np.abs(mixed[[0, 2]] - plain[[0, 2]]).max() < 1e-4
    else:
        assert np.array_equal(mixed[[0, 2]], plain[[0, 2]])
    assert np.abs(mixed[[1, 3]] - plain[[1, 3]]).max() > 0.1


def test_a_quantised_base_serves_its_dequantised_weights_plus_the_change(bases: Bases, tmp_path: Path) -> None:
    model, _ = load_model(bases("llama4"))
    dense = {f"{name}.weight": np.array(dense_weight(place.module)) for name, place in places(model).items()
             if "weight" in place.module}  # fmt: skip
    factors = draw(dense, [*layered(QUERY, VALUE, DOWN), "model.embed_tokens", "lm_head"])
    bank = AdapterBank(model)
    bank.load("one", write_mlx(tmp_path / "adapter", factors, 2.0))
    bank.select([bank.slot("one")])
    expected = reference(bases("llama"), merged(dense, factors, 2.0), tmp_path / "reference")
    assert np.abs(logprobs(model) - expected).max() < 1e-3


def test_a_peft_adapter_equals_its_mlx_lm_twin(bases: Bases, tmp_path: Path) -> None:
    factors = draw(weights_of(bases("llama")), layered(QUERY))
    model, _ = load_model(bases("llama"))
    bank = AdapterBank(model)
    bank.load("mlx", write_mlx(tmp_path / "mlx", factors, 2.0))
    bank.load("peft", write_peft(tmp_path / "peft", factors, 8.0))
    bank.select([bank.slot("mlx"), bank.slot("peft")])
    first, second = logprobs(model, rows=2)
    assert np.abs(first - second).max() < 1e-5


def test_ranks_that_differ_are_padded_and_the_factor_stays_each_adapters_own(bases: Bases, tmp_path: Path) -> None:
    weights = weights_of(bases("llama"))
    model, _ = load_model(bases("llama"))
    bank = AdapterBank(model)
    expected = []
    for rank, scale in ((2, 5.0), (16, 0.5), (7, -1.0)):
        factors = draw(weights, layered(QUERY, VALUE), rank=rank, seed=rank)
        bank.load(str(rank), write_mlx(tmp_path / str(rank), factors, scale))
        expected.append(reference(bases("llama"), merged(weights, factors, scale), tmp_path / "reference"))
    bank.select([bank.slot("2"), bank.slot("16"), bank.slot("7")])
    assert np.abs(logprobs(model, rows=3) - np.concatenate(expected)).max() < 1e-3


def test_loading_and_unloading_one_leaves_the_others_as_they_were(bases: Bases, tmp_path: Path) -> None:
    weights = weights_of(bases("llama"))
    model, _ = load_model(bases("llama"))
    bank = AdapterBank(model)
    for seed in (1, 2, 3):
        write_mlx(tmp_path / str(seed), draw(weights, layered(QUERY), rank=2 * seed, seed=seed))
    bank.load("1", tmp_path / "1")
    bank.select([bank.slot("1")])
    before = logprobs(model)
    bank.load("2", tmp_path / "2")
    bank.load("3", tmp_path / "3")
    bank.unload("2")
    bank.select([bank.slot("1")])
    assert np.abs(logprobs(model) - before).max() < 1e-5
    assert bank.load("2", tmp_path / "2").name == "2"
    assert len({bank.slot(name) for name in "123"}) == 3


def test_an_adapter_in_use_is_freed_with_its_last_request_but_its_name_is_gone_at_once(
    bases: Bases, tmp_path: Path
) -> None:
    model, bank = loaded(bases("llama"), ["mlx_lora"], tmp_path)
    slot = bank.slot("mlx_lora")
    bank.select([slot])
    before = logprobs(model)
    bank.retain(slot)
    bank.retain(slot)
    assert bank.unload("mlx_lora") is False
    with pytest.raises(UnknownAdapter):
        bank.slot("mlx_lora")
    bank.release(slot)
    bank.select([slot])
    assert np.array_equal(logprobs(model), before)
    bank.load("mlx_lora", tmp_path / "mlx_lora")
    assert bank.slot("mlx_lora") != slot
    bank.release(slot)
    assert bank.infos()[0].name == "mlx_lora"


def test_unloading_the_last_adapter_gives_back_memory_and_the_models_own_layers(bases: Bases, tmp_path: Path) -> None:
    model, _ = load_model(bases("mixture"))
    case = next(case for case in CASES if case.name == "mlx_experts")
    case.build(tmp_path / "adapter", weights_of(bases("mixture")))
    bank = AdapterBank(model)
    names = [name for name, _ in tree_flatten(model.parameters())]
    mx.eval(model(mx.array([[1]])))
    gc.collect()
    before = mx.get_active_memory()
    info = bank.load("one", tmp_path / "adapter")
    assert mx.get_active_memory() >= before + info.size
    bank.select([bank.slot("one")])
    mx.eval(model(mx.array([IDS])))
    assert bank.unload("one") is True
    gc.collect()
    assert mx.get_active_memory() <= before + 4096
    assert [name for name, _ in tree_flatten(model.parameters())] == names


def test_twenty_loads_and_unloads_in_turn_do_not_grow_memory_in_use_or_in_the_pool(
    bases: Bases, tmp_path: Path
) -> None:
    model, bank = loaded(bases("llama"), ["mlx_lora"], tmp_path)
    case = next(case for case in CASES if case.name == "peft_modules_to_save")
    case.build(tmp_path / "other", weights_of(bases("llama")))
    held = []
    for _ in range(20):
        bank.load("other", tmp_path / "other")
        bank.select([bank.slot("other"), bank.slot("mlx_lora")])
        logprobs(model, rows=2)
        bank.unload("other")
        gc.collect()
        held.append(mx.get_active_memory() + mx.get_cache_memory())
    assert max(held[2:]) <= held[1] + 4096


def test_a_refused_adapter_leaves_no_trace(bases: Bases, tmp_path: Path) -> None:
    model, bank = loaded(bases("llama"), ["mlx_lora"], tmp_path)
    bank.select([bank.slot("mlx_lora")])
    before = logprobs(model)
    factors = draw(weights_of(bases("llama")), layered(QUERY), seed=4)
    next(iter(factors.modules.values()))[0][0, 0] = np.nan
    with pytest.raises(AdapterError, match="finite"):
        bank.load("bad", write_mlx(tmp_path / "bad", factors))
    with pytest.raises(AdapterError, match="loaded already"):
        bank.load("mlx_lora", tmp_path / "mlx_lora")
    assert [info.name for info in bank.infos()] == ["mlx_lora"]
    assert np.array_equal(logprobs(model), before)


def test_a_layer_that_the_forward_bypasses_is_found_at_load_and_not_served_without_effect(
    bases: Bases, tmp_path: Path
) -> None:
    model, _ = load_model(bases("llama"))
    attention = model.layers[0].self_attn
    weight = attention.q_proj.weight

    class Bypass(type(attention)):  # type: ignore[misc]
        """Reads the weight itself, as some models do."""

        def __call__(self, x: Any, mask: Any = None, cache: Any = None) -> Any:
            kept, self.q_proj = self.q_proj, lambda x: x @ weight.T
            try:
                return super().__call__(x, mask, cache)
            finally:
                self.q_proj = kept

    attention.__class__ = Bypass
    bank = AdapterBank(model)
    folder = write_mlx(tmp_path / "one", draw(weights_of(bases("llama")), layered(QUERY)))
    with pytest.raises(ServingError, match=r"layers\.0\.self_attn\.q_proj"):
        bank.load("one", folder)
    assert bank.infos() == ()


def test_a_half_precision_model_stays_in_its_own_type_whatever_the_adapter_was_saved_in(
    bases: Bases, tmp_path: Path
) -> None:
    model, _ = load_model(bases("llama"))
    model.set_dtype(mx.bfloat16)
    bank = AdapterBank(model)
    for name in MIXED["llama"]:
        next(case for case in CASES if case.name == name).build(tmp_path / name, weights_of(bases("llama")))
        bank.load(name, tmp_path / name)
        bank.select([bank.slot(name)])
        assert model(mx.array([IDS])).dtype == mx.bfloat16
    bank.select([bank.slot(name) for name in [*MIXED["llama"], None]])
    assert model(prompts(7, 3)).dtype == mx.bfloat16


def test_what_is_told_about_an_adapter_is_what_was_loaded(bases: Bases, tmp_path: Path) -> None:
    _model, bank = loaded(bases("llama"), ["peft_rslora", "mlx_lora", "peft_patterns"], tmp_path)
    info = bank.info(bank.slot("peft_rslora"))
    assert info is not None
    assert (info.format, info.rank, info.factor, info.pairs) == ("PEFT rslora", 4, 1.5, 12)
    assert info.sources == ("lora_alpha 3 / sqrt(r 4), use_rslora",)
    assert info.targets == ("down_proj", "q_proj", "v_proj")
    assert info.summary == "applied 12 of 12 pairs"
    assert len({info.content_hash for info in bank.infos()}) == 3
    patterned = bank.info(bank.slot("peft_patterns"))
    assert patterned is not None and patterned.factor is None and patterned.factors == (2.0, 3.0, 4.0)


def test_a_batch_whose_rows_cannot_be_told_apart_is_an_error_not_a_guess(bases: Bases, tmp_path: Path) -> None:
    model, bank = loaded(bases("llama"), ["mlx_lora"], tmp_path)
    bank.select([bank.slot("mlx_lora"), 0])
    with pytest.raises(ValueError, match="no telling"):
        model(mx.array([IDS, IDS, IDS]))


def test_the_cases_cover_every_base() -> None:
    assert {case.base for case in CASES} == set(MIXED)
    assert all(isinstance(case, Case) for case in CASES)
