"""Deliberate breaks, each of which a gate is shown to catch; the real code passes the same gates elsewhere and here."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from adapter_cases import CASES, historic, mlx_lora, peft_lora, peft_rslora
from adapter_files import QUERY, draw, layered, weights_of, write_mlx
from mlx_lm.utils import load_model
from soloist.lora import bank, files, fit, merge, scale, tensors
from soloist.lora.errors import AdapterError

from .conftest import logprobs, reference

Bases = Callable[[str], Path]
Build = Callable[[Path, dict[str, Any]], dict[str, Any]]


def served_at_trained_strength(build: Build, base: Path, folder: Path) -> None:
    expected = reference(base, build(folder / "adapter", weights_of(base)), folder / "reference")
    model, _ = load_model(base)
    served = bank.AdapterBank(model)
    served.load("one", folder / "adapter")
    served.select([served.slot("one")])
    assert np.abs(logprobs(model) - expected).max() < 1e-3


def merged_at_trained_strength(build: Build, base: Path, folder: Path) -> None:
    weights = build(folder / "adapter", weights_of(base))
    model, _ = load_model(base)
    report = merge.merge_adapter(model, folder / "adapter", threshold=10.0)
    for name in (f"model.layers.{layer}.{QUERY}" for layer in range(4)):
        after = np.array(merge.places(model)[name].module.weight)
        assert np.abs(after - weights[f"{name}.weight"]).max() < 1e-5
    assert all(part.off < 1e-4 for part in report.parts)


def misfits_are_refused(build: Build, base: Path, folder: Path) -> None:
    factors = draw(weights_of(base), layered(QUERY))
    tensors_ = {f"{name.replace('self_attn', 'attention')}.lora_a": a for name, (a, _) in factors.modules.items()}
    tensors_ |= {f"{name.replace('self_attn', 'attention')}.lora_b": b for name, (_, b) in factors.modules.items()}
    write_mlx(folder / "adapter", factors, tensors=tensors_)
    model, _ = load_model(base)
    with pytest.raises(AdapterError):
        bank.AdapterBank(model).load("one", folder / "adapter")


def merged_weights_outlive_their_thread(build: Build, base: Path, folder: Path) -> None:
    build(folder / "adapter", weights_of(base))
    kept: list[Any] = []

    def work() -> None:
        mx.set_default_stream(mx.new_stream(mx.default_device()))
        model, _ = load_model(base)
        merge.merge_adapter(model, folder / "adapter")
        kept.append(model.layers[0].self_attn.q_proj.weight)
        del model
        mx.clear_streams()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    try:
        np.array(kept[0])
    except RuntimeError as error:
        raise AssertionError(f"a lazy array was kept: {error}") from None


def two_adapters_have_two_cache_keys(build: Build, base: Path, folder: Path) -> None:
    hashes = []
    for seed in (1, 2):
        path = write_mlx(folder / str(seed), draw(weights_of(base), layered(QUERY), seed=seed))
        hashes.append(files.content_hash(files.open_adapter(path)))
    assert hashes[0] != hashes[1]


def doubled(config: Any) -> scale.Scale:
    parameters = config["lora_parameters"]
    alpha, rank = parameters.get("alpha", 8), parameters["rank"]
    return scale.Scale(alpha / rank * parameters["scale"], rank, "doubled")


def _with(scale_of: Callable[[Any, float, int], float]) -> Callable[[Any, str], scale.Scale]:
    return lambda config, module: scale.Scale(
        scale_of(config, config["lora_alpha"], config["r"]), config["r"], "mutant"
    )


def swapped(pair: Any, raw: Any) -> tensors.LowRank:
    low = REAL_LOW_RANK(pair, raw)
    return tensors.LowRank(low.b.T, low.a.T, low.factor) if pair.inputs == pair.outputs else low


def lenient(adapter: Any, shapes: Any) -> fit.Fitted:
    return fit.Fitted(tuple(pair for pair in adapter.pairs if pair.module in shapes), ())


def lazily(*arguments: Any, **options: Any) -> Any:
    written = REAL_WRITE(*arguments, **options)
    written.module["weight"] = written.module["weight"] * 1
    return written


def in_bfloat16(module: Any, change: Any, *rest: Any) -> mx.array:
    return REAL_TARGET(module, change, *rest).astype(mx.bfloat16).astype(mx.float32)


REAL_LOW_RANK, REAL_WRITE, REAL_TARGET = tensors._low_rank, merge._write, merge.target_weight
MUTANTS = {
    "alpha / rank * scale": (served_at_trained_strength, historic, scale, "_mlx_lm", doubled),
    "alpha / rank * scale, merged": (merged_at_trained_strength, historic, scale, "_mlx_lm", doubled),
    "alpha ignored": (served_at_trained_strength, peft_lora, scale, "_peft", _with(lambda c, alpha, r: 1.0)),
    "rank ignored": (served_at_trained_strength, peft_lora, scale, "_peft", _with(lambda c, alpha, r: alpha)),
    "rsLoRA ignored": (served_at_trained_strength, peft_rslora, scale, "_peft", _with(lambda c, alpha, r: alpha / r)),
    "B and A swapped": (served_at_trained_strength, mlx_lora, tensors, "_low_rank", swapped),
    "strict=False": (misfits_are_refused, mlx_lora, bank, "fit", lenient),
    "lazily merged weights": (merged_weights_outlive_their_thread, mlx_lora, merge, "_write", lazily),
    "merge in bfloat16": (merged_at_trained_strength, mlx_lora, merge, "target_weight", in_bfloat16),
    "prefix cache shared between adapters": (
        two_adapters_have_two_cache_keys, mlx_lora, files, "content_hash", lambda _: "adapter",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_the_gate_passes_the_real_code_and_catches_the_mutant(
    name: str, bases: Bases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, build, module, attribute, mutant = MUTANTS[name]
    gate(build, bases("llama"), tmp_path / "real")
    monkeypatch.setattr(module, attribute, mutant)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        gate(build, bases("llama"), tmp_path / "mutant")


def test_a_merge_at_twice_the_strength_is_refused_by_the_measurement_alone(
    bases: Bases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlx_lora(tmp_path / "adapter", weights_of(bases("llama")))
    real = tensors.replaced

    def twice(module: Any, change: Any) -> Any:
        twin = real(module, change)
        if "weight" in change.wholes:
            twin["weight"] = 2 * change.wholes["weight"] - module["weight"]
        return twin

    monkeypatch.setattr(merge, "replaced", twice)
    model, _ = load_model(bases("llama"))
    with pytest.raises(AdapterError, match=r"2\.000"):
        merge.merge_adapter(model, tmp_path / "adapter")


def test_every_case_is_a_real_change() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
