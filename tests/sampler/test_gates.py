"""The gates in the suite: the real sampler passes each, and each mutant is caught by the gate that is named for it."""

import pytest
from gates import GATES
from gates.bout import catches, run
from gates.mutants import MUTANTS, Mutant
from gates.verdict import Effort

# A fixed seed, so that the suite never fails by chance; `make gates` takes a fresh one.
SEED = 20_260_101


@pytest.mark.parametrize("gate", GATES)
def test_the_real_sampler_passes_the_gate(gate: str) -> None:
    failed = [check for check in run(gate, Effort(draws=20_000, wide=False, seed=SEED)) if not check.passed]
    assert not failed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_the_mutant_is_caught_by_its_gate(mutant: Mutant) -> None:
    assert catches(mutant.gate, mutant, Effort(draws=5_000, wide=False, seed=SEED))


def test_a_mutant_leaves_no_trace_behind() -> None:
    for mutant in MUTANTS:
        before = [getattr(owner, name) for owner, name, _ in mutant.patches]
        with mutant.applied():
            pass
        assert before == [getattr(owner, name) for owner, name, _ in mutant.patches]
