"""`soloist lora merge`: a model folder with the adapter in its weights, at a strength that was measured.

MLX runs in this process only, on its main thread; the daemon is not involved.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..executor.blas import load_blas
from .model_store import resolve
from .progress import shown

if TYPE_CHECKING:
    from ..lora.merge import KeepDense, Written
    from ..lora.strength import ModuleStrength, StrengthReport


def merge_to_folder(base: str, adapter: str, out: Path, *, keep_dense: "KeepDense", threshold: float) -> int:
    """Merge and write. Raises StrengthError if a module misses the threshold, AdapterError, ModelError."""
    from .lora_store import resolve_adapter

    with shown() as progress:
        source, path = resolve(base, progress=progress), resolve_adapter(adapter, progress=progress)
    network, config = load_base(source)
    from ..lora.files import content_hash, open_adapter
    from ..lora.merge import merge_adapter
    from ..lora.merged_folder import write_merged

    report = merge_adapter(network, path, threshold=threshold, keep_dense=keep_dense, on_module=_tell)
    receipt = {
        "base": source.name,
        "adapter_sha256": content_hash(open_adapter(path)),
        "threshold": threshold,
        "summary": report.summary,
        **report_facts(report),
    }
    write_merged(network, source, out, config, report.kept_dense, receipt)
    _print(report, out)
    return 0


def load_base(folder: Path) -> tuple[Any, dict[str, Any]]:
    """(network, configuration) as stored, quantised layers left quantised; weights are read as they are needed."""
    load_blas()
    from mlx_lm.utils import load_model

    network, config = load_model(folder, lazy=True)
    network.eval()
    return network, config


def plan(network: Any, adapter: Path) -> "tuple[list[Written], StrengthReport]":
    """What a merge would write, without writing it."""
    from ..lora.merge import plan_merge

    return plan_merge(network, adapter)


def report_facts(report: "StrengthReport") -> dict[str, Any]:
    """A strength report in plain JSON types."""
    worst = report.worst
    return {
        "median_strength": report.median,
        "worst_strength": worst.strength if worst else None,
        "worst_module": worst.module if worst else None,
        "effective_scale": report.effective_scale,
        "kept_dense": list(report.kept_dense),
        "modules": [_part(part) for part in report.parts],
    }


def _part(part: "ModuleStrength") -> dict[str, Any]:
    return {"module": part.module, "strength": part.strength, "residual": part.residual, "factor": part.factor}


def _tell(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\rmerging {done} of {total} modules", end=end, file=sys.stderr, flush=True)


def _print(report: "StrengthReport", out: Path) -> None:
    worst, scale = report.worst, report.effective_scale
    print(report.summary)
    print(f"strength: median {report.median:.4f}", end="")
    print(f", worst {worst.strength:.4f} ({worst.module})" if worst else "", end="")
    print(f", effective scale {scale:.4g}" if scale is not None else "")
    if report.kept_dense:
        print(f"kept unquantised: {len(report.kept_dense)} modules")
    print(out)
