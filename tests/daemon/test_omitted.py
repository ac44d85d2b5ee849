"""Omitted is not zero, zero is not omitted: the tests that say so catch the servers that mix them up."""

from dataclasses import replace
from typing import Any

import pytest
from http_gates import answers_repeat, default_bodies_differ
from http_server import Server
from msgspec import UNSET
from soloist.daemon import validate
from soloist.sampler.params import SamplingParams

REAL_SAMPLING = validate.sampling


def omitted_as_zero(body: Any, *rest: Any) -> SamplingParams:
    sampling = REAL_SAMPLING(body, *rest)
    return replace(sampling, temperature=0.0) if body.temperature is UNSET else sampling


def zero_as_omitted(value: Any, default: Any) -> Any:
    return default if value is UNSET else value or default


def test_the_mutant_that_stores_omitted_as_zero_is_caught(dist: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "sampling", omitted_as_zero)
    with pytest.raises(AssertionError):
        default_bodies_differ(dist)


def test_the_mutant_that_takes_zero_for_omitted_is_caught(dist: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "given", zero_as_omitted)
    with pytest.raises(AssertionError):
        answers_repeat(dist, temperature=0)


def test_the_mutant_that_takes_seed_zero_for_none_is_caught(dist: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    real = validate.seed
    monkeypatch.setattr(validate, "seed", lambda body: real(body) or None)
    with pytest.raises(AssertionError):
        answers_repeat(dist, seed=0)


def test_the_mutant_with_one_fixed_seed_is_caught(dist: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from soloist.daemon import door

    monkeypatch.setattr(door, "fresh_seed", lambda: 42)
    with pytest.raises(AssertionError):
        default_bodies_differ(dist)
