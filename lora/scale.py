"""The one scale table: the only place that turns a configuration into the factor applied to B A. Plain Python.

| source                                                    | factor                                           |
|-----------------------------------------------------------|--------------------------------------------------|
| mlx-lm adapter_config.json, `lora_parameters.scale`       | `scale`; alpha and rank beside it change nothing |
| PEFT adapter_config.json                                  | `lora_alpha / r`                                 |
| PEFT with `use_rslora`                                    | `lora_alpha / sqrt(r)`                           |
| PEFT with `rank_pattern`, `alpha_pattern`                 | the same, with this module's own r and alpha     |
| fields of both kinds, of none, or not a number            | refused                                          |

Sources: LoRA (Hu et al. 2021, arXiv:2106.09685, section 4.1), rsLoRA (Kalajdzievski 2023, arXiv:2312.03732), mlx-lm's
LORA.md, and PEFT's documentation of LoraConfig.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .errors import ScaleError

Kind = Literal["mlx-lm", "peft"]
PEFT_FIELDS = ("peft_type", "lora_alpha", "r", "use_rslora", "rank_pattern", "alpha_pattern")
MLX_FIELDS = ("lora_parameters", "fine_tune_type")
FOREIGN_PARAMETERS = ("lora_alpha", "r", "use_rslora")


@dataclass(frozen=True, slots=True)
class Scale:
    """factor: multiplies B A. rank: what the configuration says it is, None if silent. source: the rule, in words."""

    factor: float
    rank: int | None
    source: str


def kind_of(config: Mapping[str, Any]) -> Kind:
    """Whose configuration this is. Raises ScaleError when it has fields of both trainers, or of neither."""
    ours = [field for field in MLX_FIELDS if field in config]
    theirs = [field for field in PEFT_FIELDS if field in config]
    if ours and theirs:
        raise ScaleError(
            f"the configuration has fields of mlx-lm ({', '.join(ours)}) and of PEFT ({', '.join(theirs)}): "
            "which of them says the scale is not for us to guess",
            [*ours, *theirs],
        )
    if not ours and not theirs:
        raise ScaleError(
            "the configuration has neither mlx-lm's lora_parameters nor PEFT's peft_type, r and lora_alpha: "
            "nothing says at what scale this adapter was trained"
        )
    return "mlx-lm" if ours else "peft"


def scale_for(config: Mapping[str, Any], module: str) -> Scale:
    """The factor for one module, named without PEFT's prefix. Raises ScaleError."""
    return _mlx_lm(config) if kind_of(config) == "mlx-lm" else _peft(config, module)


def _mlx_lm(config: Mapping[str, Any]) -> Scale:
    parameters = config.get("lora_parameters")
    if not isinstance(parameters, Mapping):
        raise ScaleError("lora_parameters is missing or not an object", ["lora_parameters"])
    foreign = [field for field in FOREIGN_PARAMETERS if field in parameters]
    if foreign:
        names = [f"lora_parameters.{field}" for field in foreign]
        raise ScaleError(f"lora_parameters mixes PEFT's fields in: {', '.join(names)}", names)
    if "scale" not in parameters:
        beside = [f"{field} {parameters[field]}" for field in ("alpha", "rank") if field in parameters]
        found = f" (there is {' and '.join(beside)}, which mlx-lm does not scale by)" if beside else ""
        raise ScaleError(f"lora_parameters has no scale{found}", ["lora_parameters.scale"])
    factor = _number(parameters["scale"], "lora_parameters.scale")
    rank = _rank(parameters["rank"], "lora_parameters.rank") if "rank" in parameters else None
    return Scale(factor, rank, f"lora_parameters.scale {factor:g}")


def _peft(config: Mapping[str, Any], module: str) -> Scale:
    rank_field, rank_value = _patterned(config, "rank_pattern", "r", module)
    alpha_field, alpha_value = _patterned(config, "alpha_pattern", "lora_alpha", module)
    rank, alpha = _rank(rank_value, rank_field), _number(alpha_value, alpha_field)
    stabilised = config.get("use_rslora") or False
    if not isinstance(stabilised, bool):
        raise ScaleError(f"use_rslora is {stabilised!r}, not true or false", ["use_rslora"])
    if stabilised:
        return Scale(alpha / math.sqrt(rank), rank, f"{alpha_field} {alpha:g} / sqrt({rank_field} {rank}), use_rslora")
    return Scale(alpha / rank, rank, f"{alpha_field} {alpha:g} / {rank_field} {rank}")


def _patterned(config: Mapping[str, Any], patterns: str, plain: str, module: str) -> tuple[str, Any]:
    """PEFT's rule: the first pattern that matches the end of the module's name wins over the plain field."""
    for pattern, value in (config.get(patterns) or {}).items():
        try:
            if re.match(rf"(.*\.)?({pattern})$", module):
                return f"{patterns}[{pattern}]", value
        except re.error as error:
            raise ScaleError(f"{patterns} has {pattern!r}, which is not a pattern: {error}", [patterns]) from None
    if plain not in config:
        raise ScaleError(f"the PEFT configuration has no {plain}", [plain])
    return plain, config[plain]


def _number(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value == 0:
        raise ScaleError(f"{field} is {value!r}, not a finite number other than 0", [field])
    return float(value)


def _rank(value: Any, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ScaleError(f"{field} is {value!r}, not a whole number of at least 1", [field])
    return value
