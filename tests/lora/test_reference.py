"""Every format and factor rule, unmerged and merged, against weights computed in NumPy: W + factor * B A."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from adapter_cases import CASES, Case
from adapter_files import weights_of
from mlx_lm.utils import load_model
from soloist.lora.bank import AdapterBank
from soloist.lora.merge import merge_adapter

from .conftest import logprobs, reference

TOLERANCE = 1e-3
named = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@named
def test_an_unmerged_adapter_gives_the_log_probabilities_of_its_reference_weights(
    case: Case, bases: Callable[[str], Path], tmp_path: Path
) -> None:
    base = bases(case.base)
    expected = reference(base, case.build(tmp_path / "adapter", weights_of(base)), tmp_path / "reference")
    model, _ = load_model(base)
    plain = logprobs(model)
    bank = AdapterBank(model)
    bank.load("one", tmp_path / "adapter")
    bank.select([bank.slot("one")])
    assert np.abs(logprobs(model) - expected).max() < TOLERANCE
    assert np.abs(expected - plain).max() > 0.1
    bank.select([bank.slot(None)])
    assert np.array_equal(logprobs(model), plain)


@named
def test_a_merged_adapter_gives_the_log_probabilities_of_its_reference_weights(
    case: Case, bases: Callable[[str], Path], tmp_path: Path
) -> None:
    base = bases(case.base)
    expected = reference(base, case.build(tmp_path / "adapter", weights_of(base)), tmp_path / "reference")
    model, _ = load_model(base)
    report = merge_adapter(model, tmp_path / "adapter")
    assert np.abs(logprobs(model) - expected).max() < TOLERANCE
    assert report.median == pytest.approx(1.0, abs=1e-3)
    assert report.worst is not None and report.worst.off < 1e-3
