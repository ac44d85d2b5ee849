"""Does this adapter belong to this model? Every tensor finds its module, or the adapter is refused. Plain Python."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .errors import MisfitError, listing
from .halves import FLOATS
from .parts import Adapter, Pair, Whole
from .shapes import ModuleShape, Shapes

PACKED = ("weight", "scales", "biases")


@dataclass(frozen=True, slots=True)
class Fitted:
    """An adapter whose every part is named as the model names its modules."""

    pairs: tuple[Pair, ...]
    wholes: tuple[Whole, ...]

    def summary(self, verb: str = "applied") -> str:
        """The log line: "applied 408 of 408 pairs" and, if there are any, the replaced parameters."""
        parts = [f"{len(self.pairs)} of {len(self.pairs)} pairs"] if self.pairs else []
        if self.wholes:
            parts.append(f"{len(self.wholes)} of {len(self.wholes)} replaced parameters")
        return f"{verb} {' and '.join(parts)}"


def fit(adapter: Adapter, shapes: Shapes) -> Fitted:
    """Match every part to a module. Raises MisfitError that names what does not fit, first ones first."""
    problems: list[tuple[str, str]] = []
    pairs, wholes = [], []
    for pair in adapter.pairs:
        name = _find(pair.module, shapes)
        if trouble := _pair_trouble(pair, shapes.get(name or "")):
            problems.append((pair.a[0], trouble))
        pairs.append(replace(pair, module=name or pair.module))
    for whole in adapter.wholes:
        name = _find(whole.module, shapes)
        if trouble := _whole_trouble(whole, shapes.get(name or "")):
            problems.append((whole.key, trouble))
        wholes.append(replace(whole, module=name or whole.module))
    problems += _half_packed(wholes, shapes) + _unmet(adapter, [*pairs, *wholes], shapes)
    if problems:
        total = len(adapter.pairs) + len(adapter.wholes)
        lines = [f"{key}: {trouble}" for key, trouble in problems]
        raise MisfitError(f"{len(problems)} misfits in {total} parts: {listing(lines)}", [key for key, _ in problems])
    return Fitted(tuple(pairs), tuple(wholes))


def _find(module: str, shapes: Shapes) -> str | None:
    """The model's name for the module: its own, or with the prefixes by which text and wrapped models differ."""
    bare = module.removeprefix("model.")
    for name in (
        module,
        module.replace("model.language_model.", "language_model.model.", 1),
        "model." + module,
        bare,
        "language_model." + module,
        "language_model." + bare.removeprefix("language_model."),
    ):
        if name in shapes:
            return name
    return None


def _pair_trouble(pair: Pair, shape: ModuleShape | None) -> str:
    if shape is None:
        return f"the model has no module {pair.module}"
    if shape.kind == "other":
        return f"{pair.module} ({shape.type_name or 'no matrix'}) takes no low-rank change"
    if bool(pair.experts) != (shape.kind == "experts"):
        return f"{pair.module} {'has' if shape.kind == 'experts' else 'has no'} experts"
    wanted = [(pair.outputs, pair.inputs), (pair.inputs, pair.outputs)]
    allowed = {"linear": wanted[:1], "experts": wanted[:1], "embedding": wanted[1:], "matrix": wanted}[shape.kind]
    if shape.dense[-2:] not in allowed:
        return f"changes {pair.inputs} -> {pair.outputs}, but {pair.module} has weight {shape.dense}"
    if pair.experts and pair.experts != shape.dense[0]:
        return f"has {pair.experts} experts, {pair.module} has {shape.dense[0]}"
    if pair.magnitude and pair.magnitudes != shape.dense[0]:
        return f"has {pair.magnitudes} magnitudes, {pair.module} has {shape.dense[0]} rows"
    if pair.magnitude and shape.kind == "experts":
        return "DoRA on experts is not supported"
    if pair.magnitude and pair.torch_layout and shape.kind == "embedding":
        return "PEFT's DoRA on embeddings is not supported"
    if pair.bias and pair.magnitude:
        return "DoRA with a bias of lora_B is not supported"
    if pair.bias and shape.kind != "linear" and shape.kind != "matrix":
        return "a bias of lora_B is supported on linear modules only"
    return ""


def _whole_trouble(whole: Whole, shape: ModuleShape | None) -> str:
    if shape is None:
        return f"the model has no module {whole.module}"
    stored = shape.parameters.get(whole.parameter)
    if stored is None:
        return f"{whole.module} has no {whole.parameter}"
    if whole.dtype not in FLOATS and not (shape.quantised and whole.parameter in PACKED):
        return f"is of type {whole.dtype}, not a float type"
    dense = whole.parameter == "weight" and shape.dense == whole.shape and whole.dtype in FLOATS
    if stored != whole.shape and not dense:
        wanted = shape.dense if whole.parameter == "weight" and shape.dense else stored
        return f"has shape {whole.shape}, {whole.module}.{whole.parameter} has {wanted}"
    return ""


def _half_packed(wholes: list[Whole], shapes: Shapes) -> list[tuple[str, str]]:
    """A quantised matrix is replaced with all of its scales, or by a dense weight."""
    problems = []
    packed: dict[str, dict[str, Whole]] = {}
    for whole in wholes:
        shape = shapes.get(whole.module)
        if shape and shape.quantised and whole.parameter in PACKED and whole.shape != shape.dense:
            packed.setdefault(whole.module, {})[whole.parameter] = whole
    for module, parts in packed.items():
        lacking = [name for name in PACKED if name in shapes[module].parameters and name not in parts]
        if lacking:
            key = next(iter(parts.values())).key
            problems.append((key, f"replaces half of the quantised {module}: {', '.join(lacking)} missing"))
    return problems


def _unmet(adapter: Adapter, parts: list[Pair | Whole], shapes: Shapes) -> list[tuple[str, str]]:
    """Modules that the configuration promises, that the model has, and for which the file holds nothing at all."""
    changed = [part.module for part in parts]
    problems = []
    for claim in adapter.claims:
        if _ends(changed, claim) or not _ends(_matrices(shapes), claim):
            continue
        problems.append((claim, "named by the configuration, present in the model, but without any tensor"))
    return problems


def _matrices(shapes: Mapping[str, ModuleShape]) -> list[str]:
    return [name for name, shape in shapes.items() if shape.kind != "other"]


def _ends(names: list[str], ending: str) -> bool:
    return any(name == ending or name.endswith("." + ending) for name in names)
