"""Merging an adapter into a model's weights, at a strength that is measured before it counts. Executor thread only.

Deltas are computed in float32 and written in the layer's own way: plain weights in their float type, quantised ones
requantised with their own group size, bits and mode. Every new array is concrete before the model gets it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import mlx.core as mx
import mlx.nn as nn

from .dense import dense_twin
from .errors import MisfitError, StrengthError, listing
from .fit import fit
from .formats import read_adapter
from .modules import QUANTISED, Place, dense_weight, float_type, places, shape_of
from .strength import THRESHOLD, ModuleStrength, StrengthReport, measure
from .tensors import Change, load_changes, replaced, target_weight

KeepDense = Literal["never", "auto"] | Sequence[str]
PACKED = ("weight", "scales", "biases", "global_scale")


@dataclass(slots=True)
class Written:
    """A module's replacement, ready to be put in place."""

    place: Place
    module: nn.Module
    parts: list[ModuleStrength]


def merge_adapter(
    model: nn.Module,
    path: Path,
    *,
    threshold: float = THRESHOLD,
    keep_dense: KeepDense = "never",
    on_module: Callable[[int, int], None] | None = None,
) -> StrengthReport:
    """Merge the adapter in `path` into `model` for good, or leave the model as it was and raise.

    threshold: largest |strength - 1| of a module. keep_dense: module names that become unquantised, or "auto" for those
    that miss the threshold when quantised. on_module(done, total) reports progress. Raises AdapterError; StrengthError
    if a module misses the threshold.
    """
    written, report = plan_merge(model, path, threshold=threshold, keep_dense=keep_dense, on_module=on_module)
    refuse_weak(report, threshold)
    for part in written:
        part.place.put(part.module)
    return report


def plan_merge(
    model: nn.Module,
    path: Path,
    *,
    threshold: float = THRESHOLD,
    keep_dense: KeepDense = "never",
    on_module: Callable[[int, int], None] | None = None,
) -> tuple[list[Written], StrengthReport]:
    """What a merge would write and what strength it would have; the model is not changed."""
    adapter = read_adapter(path)
    known = places(model)
    fitted = fit(adapter, {name: shape_of(place.module) for name, place in known.items()})
    changes = load_changes(adapter, fitted)
    strangers = [] if isinstance(keep_dense, str) else [name for name in keep_dense if name not in changes]
    if strangers:
        raise MisfitError(f"to be kept unquantised, but not changed by the adapter: {listing(strangers)}", strangers)
    written = []
    for done, (name, change) in enumerate(changes.items(), start=1):
        written.append(_write(name, known[name], change, threshold, keep_dense))
        if on_module is not None:
            on_module(done, len(changes))
    parts = tuple(part for one in written for part in one.parts)
    if all(part.strength is None for part in parts):
        raise MisfitError("the adapter changes nothing: its trained change is zero in every module")
    return written, StrengthReport(parts, fitted.summary("merged"))


def refuse_weak(report: StrengthReport, threshold: float) -> None:
    """Raises StrengthError, with the figure and the remedies, if a part misses the threshold."""
    weak = report.beyond(threshold)
    if not weak:
        return
    worst = weak[0]
    raise StrengthError(
        f"merged, {len(weak)} of {len(report.measured)} parts would miss their trained strength by more than "
        f"{threshold:.0%}; the worst, {worst.module}, would act at {worst.strength:.3f} of it (median "
        f"{report.median:.3f}). Serve the adapter unmerged, keep these modules unquantised (--keep-dense auto), or "
        "merge into a model of more bits",
        [part.module for part in weak],
    )


def _write(name: str, place: Place, change: Change, threshold: float, keep_dense: KeepDense) -> Written:
    module = place.module
    change = _with_bias(name, module, change)
    new = replaced(module, change)
    parts = [
        _replaced_strength(name, module, new, parameter)
        for parameter in change.wholes
        if parameter not in PACKED or "weight" not in module
    ]
    if change.low is None and not any(parameter in PACKED for parameter in change.wholes):
        mx.eval(new.parameters())
        return Written(place, new, parts)
    before, meant = dense_weight(module), target_weight(module, change)
    mx.eval(before, meant)
    factor = change.low.factor if change.low else None
    wanted = not isinstance(keep_dense, str) and name in keep_dense
    new = _with_weight(module, new, meant, change, dense=wanted)
    strength, residual = measure(before, dense_weight(new), meant)
    part = ModuleStrength(name, strength, residual, factor, wanted and isinstance(module, QUANTISED))
    if part.off > threshold and keep_dense == "auto" and isinstance(module, QUANTISED):
        new = _with_weight(module, new, meant, change, dense=True)
        part = ModuleStrength(name, *measure(before, dense_weight(new), meant), factor, True)
    return Written(place, new, [*parts, part])


def _with_weight(module: nn.Module, new: nn.Module, meant: mx.array, change: Change, dense: bool) -> nn.Module:
    """`new` with the meant weight, in the original module's own type or quantisation, or dense; concrete."""
    parameters = {key: value for key, value in new.items() if isinstance(value, mx.array) and key not in PACKED}
    if isinstance(module, QUANTISED) and not dense:
        raw = {key: change.wholes[key] for key in PACKED if key in change.wholes}
        packed = raw if "scales" in raw and change.low is None else _requantise(module, meant)
        twin = replaced(module, Change(wholes={**packed, **parameters}))
    elif isinstance(module, QUANTISED):
        twin = dense_twin(module, meant.astype(float_type(module)), parameters)
    else:
        twin = replaced(module, Change(wholes={**parameters, "weight": meant.astype(module["weight"].dtype)}))
    mx.eval(twin.parameters())
    return twin


def _requantise(module: nn.Module, weight: mx.array) -> dict[str, mx.array]:
    if module.get("global_scale") is not None:
        raise MisfitError(f"{type(module).__name__} with a global scale cannot be requantised")
    quantised = mx.quantize(weight, module.group_size, module.bits, mode=module.mode)
    names = PACKED[: len(quantised)]
    return {
        name: value if name == "weight" else value.astype(module[name].dtype)
        for name, value in zip(names, quantised, strict=True)
    }


def _with_bias(name: str, module: nn.Module, change: Change) -> Change:
    """The bias of lora_B becomes part of the layer's own, which must exist: a model folder cannot gain parameters."""
    if change.low is None or change.low.bias is None:
        return change
    own = change.wholes.get("bias", module.get("bias"))
    if own is None:
        raise MisfitError(f"{name} has no bias that lora_B's could be merged into: serve the adapter unmerged", [name])
    bias = own.astype(mx.float32) + change.low.factor * change.low.bias
    return Change(change.low, {**change.wholes, "bias": bias})


def _replaced_strength(name: str, module: nn.Module, new: nn.Module, parameter: str) -> ModuleStrength:
    """A bias or a norm's weight: stored in the model's own float type."""
    before, meant = module[parameter], new[parameter]
    if mx.issubdtype(before.dtype, mx.floating):
        new[parameter] = meant.astype(before.dtype)
    mx.eval(new[parameter])
    return ModuleStrength(f"{name}.{parameter}", *measure(before, new[parameter], meant), None)
