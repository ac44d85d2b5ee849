"""Every gate on the sampler over the whole matrix, then every mutant under every gate; leaves a JSON receipt.

    python tests/run_gates.py [--seed N] [--draws N] [--quick] [--receipts FOLDER]

Ends with status 1 when a gate fails or a mutant is missed by the gate that is named for it.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import json
import platform
import secrets
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

if sys.platform == "linux":
    with suppress(OSError):  # a fast BLAS must be there before mlx is; the gates only get slower without
        ctypes.CDLL("libopenblas.so.0", mode=ctypes.RTLD_GLOBAL)
sys.path.insert(0, str(Path(__file__).parent))

import mlx.core as mx
from gates import GATES
from gates.bout import catches, run
from gates.mutants import MUTANTS
from gates.verdict import Effort

MUTANT_DRAWS = 5000
PACKAGES = ("soloist", "mlx", "mlx-lm", "numpy", "scipy")


def main() -> int:
    options = _options()
    effort = Effort(options.draws, wide=not options.quick, seed=options.seed)
    began = time.time()
    gates = {name: _judged(name, effort) for name in GATES}
    table = _table(options.seed)
    missed = [mutant.name for mutant in MUTANTS if not table[mutant.name][mutant.gate]]
    passed = not missed and all(gate["passed"] for gate in gates.values())
    _print_table(table)
    receipt = {
        "verdict": "pass" if passed else "fail",
        "seed": options.seed,
        "draws": {"gates": options.draws, "mutants": MUTANT_DRAWS},
        "wide": effort.wide,
        "device": str(mx.default_device()),
        "platform": platform.platform(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "seconds": round(time.time() - began, 1),
        "gates": gates,
        "mutants": {m.name: {"gate": m.gate, "caught_by": [g for g in GATES if table[m.name][g]]} for m in MUTANTS},
        "missed": missed,
    }
    path = options.receipts / f"gates-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(receipt, indent=1, default=lambda number: number.item()) + "\n")
    print(f"\n{receipt['verdict']}: {len(GATES)} gates, {len(MUTANTS)} mutants, {len(missed)} missed; receipt {path}")
    return 0 if passed else 1


def _judged(name: str, effort: Effort) -> dict[str, Any]:
    began = time.time()
    checks = run(name, effort)
    failed = [check for check in checks if not check.passed]
    print(
        f"{'FAIL' if failed else 'pass'}  {name:15s} {len(checks):4d} checks  {time.time() - began:6.1f} s", flush=True
    )
    for check in failed:
        print(f"      {check.name}  {check.figures}")
    return {"passed": not failed, "checks": [asdict(check) for check in checks]}


def _table(seed: int) -> dict[str, dict[str, bool]]:
    effort = Effort(MUTANT_DRAWS, wide=False, seed=seed)
    table = {}
    for mutant in MUTANTS:
        table[mutant.name] = {gate: catches(gate, mutant, effort) for gate in GATES}
        print(f"{'caught' if table[mutant.name][mutant.gate] else 'MISSED'}  {mutant.name}", flush=True)
    return table


def _print_table(table: dict[str, dict[str, bool]]) -> None:
    print("\ngate x mutant: ● caught by the gate that is named for it, + caught as well, · not seen")
    for number, gate in enumerate(GATES):
        print(f"{'':42s}{'│ ' * number}┌ {gate}")
    for mutant in MUTANTS:
        marks = [
            "●" if gate == mutant.gate and seen else "+" if seen else "·" for gate, seen in table[mutant.name].items()
        ]
        print(f"{mutant.name:42s}{' '.join(marks)}")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run every gate on the sampler, and every mutant under every gate.")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="default: a fresh one")
    parser.add_argument("--draws", type=int, default=20_000, help="draws a cell (default 20000)")
    parser.add_argument("--quick", action="store_true", help="eight cells instead of the whole matrix")
    parser.add_argument("--receipts", type=Path, default=Path("receipts"), help="where the receipt goes")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
