"""Adapters in the layout of Hugging Face PEFT: LoRA, rsLoRA, DoRA, biases, modules_to_save. Plain Python.

Keys are `base_model.model.<module>.lora_A.weight` (rank, inputs) and `.lora_B.weight` (outputs, rank), for embeddings
`.lora_embedding_A` and `_B`, each perhaps with the adapter's name before `.weight`. Source: PEFT's documentation of
checkpoint formats and of LoraConfig.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .errors import FormatError, MisfitError, listing
from .files import AdapterFiles, Tensor
from .halves import all_or_raise, join
from .mlx_lm_format import whole
from .parts import Adapter, Pair, Whole
from .scale import scale_for

PREFIX = "base_model.model."
LOW_RANK = re.compile(
    r"^(?P<module>.+)\.(?P<role>lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)"
    r"(?:\.(?!weight$|bias$)[^.]+)?(?:\.(?P<leaf>weight|bias))?$"
)
ROLES = {
    "lora_A": "a", "lora_embedding_A": "a", "lora_B": "b", "lora_embedding_B": "b",
    "lora_magnitude_vector": "magnitude",
}  # fmt: skip
SAVED = re.compile(r"^(?P<module>.+)\.modules_to_save(?:\.(?!weight$|bias$)[^.]+)?\.(?P<rest>.+)$")
EXPERT = re.compile(r"^(?P<block>.+)\.experts\.(?P<number>\d+)\.(?P<name>w[123]|gate_proj|up_proj|down_proj)$")
EXPERT_NAMES = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
UNSUPPORTED = (
    "layer_replication", "alora_invocation_tokens", "trainable_token_indices", "target_parameters", "megatron_config",
    "use_qalora", "arrow_config", "monteclora_config", "velora_config",
)  # fmt: skip
BASE_CHANGING = ("pissa", "olora", "corda", "loftq", "lora_ga")  # these trained on altered base weights


def read_peft(files: AdapterFiles) -> Adapter:
    """Raises FormatError, ScaleError, MisfitError."""
    _check_config(files.config)
    modules: dict[str, dict[str, Tensor]] = {}
    wholes: dict[str, Whole] = {}
    for tensor in files.tensors:
        name = tensor.key.removeprefix(PREFIX)
        if match := LOW_RANK.match(name):
            _file(modules.setdefault(match["module"], {}), _role(match), tensor)
        else:
            _keep(wholes, _whole_name(name), tensor)
    if wholes and files.config.get("fan_in_fan_out"):
        keys = [part.key for part in wholes.values()]
        raise MisfitError(f"fan_in_fan_out leaves the orientation of {listing(keys)} open: not supported", keys)
    pairs, problems = _pairs(files, modules)
    all_or_raise(problems)
    style = "dora" if files.config.get("use_dora") else "rslora" if files.config.get("use_rslora") else "lora"
    return Adapter(files, f"PEFT {style}", _stack_experts(pairs), tuple(wholes.values()), _claims(files.config))


def _check_config(config: Mapping[str, Any]) -> None:
    kind = config.get("peft_type")
    if str(kind).upper() != "LORA":
        raise FormatError(f"peft_type {kind!r} is not supported, only LORA is", ["peft_type"])
    asked = [field for field in UNSUPPORTED if config.get(field)]
    if asked:
        raise FormatError(f"the PEFT configuration asks for {', '.join(asked)}, which is not supported", asked)
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(BASE_CHANGING):
        raise FormatError(
            f"init_lora_weights {start!r} trained on altered base weights, which are not the ones served here; "
            "let PEFT convert the adapter when saving it (path_initial_model_for_weight_conversion)",
            ["init_lora_weights"],
        )


def _role(match: re.Match[str]) -> str:
    role = ROLES[match["role"]]
    if match["leaf"] == "bias":
        return "bias" if role == "b" else "bias of " + role
    return role


def _file(halves: dict[str, Tensor], role: str, tensor: Tensor) -> None:
    if role.startswith("bias of"):
        raise MisfitError(f"{tensor.key} is not a tensor of a LoRA adapter", [tensor.key])
    if role in halves:
        raise MisfitError(f"{tensor.key} and {halves[role].key} are the same half", [tensor.key, halves[role].key])
    halves[role] = tensor


def _whole_name(name: str) -> str:
    if match := SAVED.match(name):
        return f"{match['module']}.{match['rest']}"
    return name.replace(".base_layer.", ".").replace(".original_module.", ".")


def _keep(wholes: dict[str, Whole], name: str, tensor: Tensor) -> None:
    if "lora_" in name or "." not in name:
        raise MisfitError(f"{tensor.key} is not a tensor of a LoRA adapter that we know", [tensor.key])
    if name in wholes:
        keys = [tensor.key, wholes[name].key]
        raise MisfitError(f"{keys[0]} and {keys[1]} are the same parameter", keys)
    wholes[name] = whole(name, tensor)


def _pairs(files: AdapterFiles, modules: dict[str, dict[str, Tensor]]) -> tuple[list[Pair], list[MisfitError]]:
    pairs, problems = [], []
    for module, halves in modules.items():
        try:
            if files.config.get("use_dora", False) != ("magnitude" in halves):
                key = next(iter(halves.values())).key
                raise MisfitError(f"use_dora and the magnitude vector of {module} disagree", [key])
            pairs.append(join(module, halves, scale_for(files.config, module), torch_layout=True))
        except MisfitError as problem:
            problems.append(problem)
    return pairs, problems


def _stack_experts(pairs: list[Pair]) -> tuple[Pair, ...]:
    """PEFT names each expert; mlx-lm keeps all experts of a block in one module `switch_mlp.<name>`."""
    single: list[Pair] = []
    stacks: dict[str, dict[int, Pair]] = {}
    for pair in pairs:
        if match := EXPERT.match(pair.module):
            name = EXPERT_NAMES.get(match["name"], match["name"])
            stacks.setdefault(f"{match['block']}.switch_mlp.{name}", {})[int(match["number"])] = pair
        else:
            single.append(pair)
    return (*single, *(_stack(module, experts) for module, experts in stacks.items()))


def _stack(module: str, experts: dict[int, Pair]) -> Pair:
    ordered = [experts[number] for number in sorted(experts)]
    first = ordered[0]
    gaps = sorted(set(range(max(experts) + 1)) - set(experts))
    if gaps:
        raise MisfitError(f"experts {listing([str(gap) for gap in gaps])} of {module} have no pair", [first.a[0]])
    odd = [pair.a[0] for pair in ordered if (pair.rank, pair.scale.factor) != (first.rank, first.scale.factor)]
    if odd or any(pair.magnitude or pair.bias for pair in ordered):
        raise MisfitError(
            f"the experts of {module} differ in rank or scale, or have magnitudes or biases: not supported",
            odd or [first.a[0]],
        )
    a, b = tuple(pair.a[0] for pair in ordered), tuple(pair.b[0] for pair in ordered)
    return replace(first, module=module, a=a, b=b, experts=len(ordered))


def _claims(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Module endings that must have a pair: only where the configuration lists names and excludes nothing."""
    targets = config.get("target_modules")
    if not isinstance(targets, list) or config.get("exclude_modules") or config.get("layers_to_transform"):
        return ()
    return tuple(str(target) for target in targets if target not in EXPERT_NAMES)
