"""Adapters that mlx-lm wrote: fine_tune_type lora, dora or full. Plain Python.

Keys are `<module>.lora_a`, `.lora_b` and, for dora, `.m`; a full fine-tune holds `<module>.<parameter>`.
Source: the training section of mlx-lm (LORA.md) and the file layout that `mlx_lm.lora` saves.
"""

from .errors import FormatError, MisfitError, listing
from .files import AdapterFiles, Tensor
from .halves import all_or_raise, join
from .parts import Adapter, Pair, Whole
from .scale import scale_for

ROLES = {"lora_a": "a", "lora_b": "b", "m": "magnitude"}


def read_mlx_lm(files: AdapterFiles) -> Adapter:
    """Raises FormatError, ScaleError, MisfitError."""
    style = files.config.get("fine_tune_type", "lora")
    if style == "full":
        return Adapter(files, "mlx-lm full", (), tuple(whole(tensor.key, tensor) for tensor in files.tensors))
    if style not in ("lora", "dora"):
        raise FormatError(f"fine_tune_type {style!r} is not one of lora, dora, full", ["fine_tune_type"])
    modules, strangers = _by_module(files, style)
    if strangers:
        raise MisfitError(
            f"not a tensor of a {style} adapter: {listing(strangers)} ({len(modules)} modules have their pair)",
            strangers,
        )
    pairs, problems = _pairs(files, modules, style)
    all_or_raise(problems)
    keys = files.config["lora_parameters"].get("keys") or ()
    return Adapter(files, f"mlx-lm {style}", tuple(pairs), (), tuple(keys))


def _by_module(files: AdapterFiles, style: str) -> tuple[dict[str, dict[str, Tensor]], list[str]]:
    roles = ROLES if style == "dora" else {name: role for name, role in ROLES.items() if name != "m"}
    modules: dict[str, dict[str, Tensor]] = {}
    strangers = []
    for tensor in files.tensors:
        module, _, leaf = tensor.key.rpartition(".")
        if module and leaf in roles:
            modules.setdefault(module, {})[roles[leaf]] = tensor
        else:
            strangers.append(tensor.key)
    return modules, strangers


def _pairs(
    files: AdapterFiles, modules: dict[str, dict[str, Tensor]], style: str
) -> tuple[list[Pair], list[MisfitError]]:
    pairs, problems = [], []
    for module, halves in modules.items():
        try:
            if style == "dora" and "magnitude" not in halves:
                key = next(iter(halves.values())).key
                raise MisfitError(f"{module} has no magnitude vector m, which a dora adapter needs", [key])
            pairs.append(join(module, halves, scale_for(files.config, module), torch_layout=False))
        except MisfitError as problem:
            problems.append(problem)
    return pairs, problems


def whole(name: str, tensor: Tensor) -> Whole:
    """A replaced parameter from its full name in the model, `<module>.<parameter>`."""
    module, _, parameter = name.rpartition(".")
    return Whole(module, parameter, tensor.key, tensor.dtype, tensor.shape)
