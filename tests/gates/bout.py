"""A bout: one gate against the real code, or against a mutant."""

from __future__ import annotations

from . import GATES
from .mutants import Mutant
from .verdict import Check, Effort


def run(gate: str, effort: Effort) -> list[Check]:
    """The checks of one gate. A sampler that trips an assertion fails like one that draws wrongly."""
    try:
        return GATES[gate](effort)
    except AssertionError as error:
        return [Check(f"assertion: {error}", False)]


def catches(gate: str, mutant: Mutant, effort: Effort) -> bool:
    """Whether the gate fails with the mutant applied."""
    with mutant.applied():
        return any(not check.passed for check in run(gate, effort))
