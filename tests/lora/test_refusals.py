"""Adapters that must be refused, by name, from the headers alone: before a model is loaded, in milliseconds."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapter_files import (
    QUERY,
    VALUE,
    Factors,
    draw,
    layered,
    mlx_tensors,
    peft_tensors,
    weights_of,
    write_mlx,
    write_peft,
)
from mlx_lm.utils import load_model
from soloist.lora.bank import AdapterBank
from soloist.lora.check import inspect
from soloist.lora.errors import AdapterError, FormatError, MisfitError, ScaleError

Bases = Callable[[str], Path]
Tensors = dict[str, Any]


def refused(folder: Path, base: Path, kind: type[AdapterError], *named: str) -> None:
    """Refused from the headers and, in the same words, when the bank is asked to load it."""
    with pytest.raises(kind) as refusal:
        inspect(folder, base)
    for word in named:
        assert word in refusal.value.message
    model, _ = load_model(base)
    with pytest.raises(kind) as second:
        AdapterBank(model).load("one", folder)
    assert second.value.keys == refusal.value.keys


@pytest.fixture
def factors(bases: Bases) -> Factors:
    return draw(weights_of(bases("llama")), layered(VALUE))


def renamed(tensors: Mapping[str, Any], old: str, new: str) -> Tensors:
    return {key.replace(old, new): value for key, value in tensors.items()}


def only_a(tensors: Mapping[str, Any]) -> Tensors:
    return {key: value for key, value in tensors.items() if "lora_b" not in key.lower()}


def turned(tensors: Mapping[str, Any]) -> Tensors:
    return {key: value.T if "lora_b" in key.lower() else value for key, value in tensors.items()}


FIRST = "model.layers.0.self_attn.v_proj"


@pytest.mark.parametrize("writer", [write_mlx, write_peft])
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: renamed(t, VALUE, "attention.wv"), "attention.wv"),
        (lambda t: renamed(t, "layers.3", "layers.4"), "layers.4.self_attn.v_proj"),
        (only_a, FIRST),
        (turned, "transposed"),
        (lambda t: t | {"model.layers.0.extra.thing": np.zeros(3, np.float32)}, "model.layers.0.extra.thing"),
        (lambda t: renamed(t, VALUE, QUERY), "has weight (64, 64)"),
    ],
    ids=["wrong names", "layer beyond the model", "missing half", "transposed", "stray tensor", "wrong shape"],
)
def test_tensors_that_do_not_fit_are_refused_and_the_first_are_named(
    writer: Callable[..., Path], change: Callable[[Tensors], Tensors], named: str, factors: Factors, bases: Bases,
    tmp_path: Path,
) -> None:  # fmt: skip
    tensors = mlx_tensors(factors) if writer is write_mlx else peft_tensors(factors)
    refused(writer(tmp_path / "one", factors, tensors=change(tensors)), bases("llama"), MisfitError, named)


def test_a_rank_that_disagrees_with_the_tensors_is_refused(factors: Factors, bases: Bases, tmp_path: Path) -> None:
    parameters = {"rank": 8, "scale": 2.0, "dropout": 0.0, "keys": [VALUE]}
    refused(write_mlx(tmp_path / "mlx", factors, lora_parameters=parameters), bases("llama"), ScaleError, "rank 8", "4")
    refused(write_peft(tmp_path / "peft", factors, r=8), bases("llama"), ScaleError, "r 8", "rank 4")


def test_fields_of_both_trainers_are_refused(factors: Factors, bases: Bases, tmp_path: Path) -> None:
    refused(write_mlx(tmp_path / "one", factors, peft_type="LORA"), bases("llama"), ScaleError, "peft_type")


def test_fewer_layers_in_the_configuration_than_in_the_file_still_means_all_tensors(
    factors: Factors, bases: Bases, tmp_path: Path
) -> None:
    folder = write_mlx(tmp_path / "one", factors, num_layers=2)
    assert inspect(folder, bases("llama")).summary == "matched 4 of 4 pairs"


def test_a_target_without_any_tensor_is_refused(factors: Factors, bases: Bases, tmp_path: Path) -> None:
    folder = write_peft(tmp_path / "one", factors, target_modules=["v_proj", "o_proj"])
    refused(folder, bases("llama"), MisfitError, "o_proj")
    folder = write_peft(tmp_path / "two", factors, target_modules=["v_proj", "c_attn"])
    assert inspect(folder, bases("llama")).fits


def test_a_tied_model_has_no_head_of_its_own_to_change(bases: Bases, tmp_path: Path) -> None:
    head = draw(weights_of(bases("llama")), ["lm_head"])
    refused(write_mlx(tmp_path / "one", head), bases("tied"), MisfitError, "lm_head")


def test_a_missing_expert_is_refused(bases: Bases, tmp_path: Path) -> None:
    experts = draw(weights_of(bases("mixture")), layered("block_sparse_moe.switch_mlp.gate_proj", layers=[0]))
    tensors = {key: value for key, value in peft_tensors(experts).items() if ".experts.2." not in key}
    folder = write_peft(tmp_path / "one", experts, tensors=tensors)
    refused(folder, bases("mixture"), MisfitError, "experts 2 ")
    tensors = {key: value for key, value in peft_tensors(experts).items() if ".experts.3." not in key}
    folder = write_peft(tmp_path / "two", experts, tensors=tensors)
    refused(folder, bases("mixture"), MisfitError, "has 3 experts")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"peft_type": "IA3"}, "IA3"),
        ({"init_lora_weights": "pissa_niter_16"}, "pissa"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"trainable_token_indices": [3]}, "trainable_token_indices"),
    ],
)
def test_a_kind_of_adapter_that_is_not_supported_is_refused_by_name(
    changes: dict[str, Any], named: str, factors: Factors, bases: Bases, tmp_path: Path
) -> None:
    refused(write_peft(tmp_path / "one", factors, **changes), bases("llama"), FormatError, named)


def test_dora_that_the_file_does_not_hold_is_refused(factors: Factors, bases: Bases, tmp_path: Path) -> None:
    refused(write_peft(tmp_path / "peft", factors, use_dora=True), bases("llama"), MisfitError, "magnitude")
    refused(write_mlx(tmp_path / "mlx", factors, fine_tune_type="dora"), bases("llama"), MisfitError, "magnitude")


def test_folders_that_hold_no_adapter_say_what_they_lack(factors: Factors, bases: Bases, tmp_path: Path) -> None:
    base = bases("llama")
    refused(tmp_path / "nothing", base, FormatError, "no adapter folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", base, FormatError, "adapter_config.json")
    folder = write_peft(tmp_path / "pickle", factors)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    refused(folder, base, FormatError, "adapter_model.bin", "pickle")
    folder = write_mlx(tmp_path / "torn", factors)
    weights = folder / "adapters.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    refused(folder, base, FormatError, "damaged")
    weights.write_bytes(b"\xff" * 64)
    refused(folder, base, FormatError, "not a safetensors file")
    (folder / "adapter_config.json").write_text("[1]")
    refused(folder, base, FormatError, "not a JSON object")
    (folder / "adapter_config.json").write_text("{")
    refused(folder, base, FormatError, "JSON")


def test_two_adapters_in_one_file_are_refused(factors: Factors, bases: Bases, tmp_path: Path) -> None:
    tensors = peft_tensors(factors, "default") | peft_tensors(factors, "other")
    refused(write_peft(tmp_path / "one", factors, tensors=tensors), bases("llama"), MisfitError, "same half")


def test_the_check_needs_no_mlx(factors: Factors, bases: Bases, tmp_path: Path) -> None:
    folder = write_peft(tmp_path / "one", factors)
    code = (
        "import sys, pathlib, json; from soloist.lora.check import inspect; "
        f"found = inspect(pathlib.Path({str(folder)!r}), pathlib.Path({str(bases('llama'))!r})); "
        "print(json.dumps([found.summary, 'mlx' in sys.modules, 'mlx.core' in sys.modules, 'numpy' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["matched 4 of 4 pairs", False, False, False]


def test_a_quantised_model_is_matched_from_its_headers_too(factors: Factors, bases: Bases, tmp_path: Path) -> None:
    assert inspect(write_mlx(tmp_path / "one", factors), bases("llama4")).summary == "matched 4 of 4 pairs"
