"""Bringing the two halves of a low-rank pair together, and the checks that need no model. Plain Python."""

import math

from .errors import MisfitError, ScaleError, listing
from .files import Tensor
from .parts import Pair
from .scale import Scale

FLOATS = ("F32", "F16", "BF16")


def dims(a: Tensor, b: Tensor, torch_layout: bool) -> tuple[int, int, int, int]:
    """(inputs, outputs, rank, experts) of a pair. Raises MisfitError if the halves do not meet in one rank."""
    stacked = len(a.shape) == 3 and not torch_layout
    if len(a.shape) != len(b.shape) or (len(a.shape) != 2 and not stacked):
        raise MisfitError(f"{a.key} has shape {a.shape} and {b.key} {b.shape}: not a low-rank pair", [a.key, b.key])
    if stacked or torch_layout:
        (rank, inputs), (outputs, other) = a.shape[-2:], b.shape[-2:]
    else:
        (inputs, rank), (other, outputs) = a.shape, b.shape
    experts = a.shape[0] if stacked else 0
    if rank != other or (stacked and b.shape[0] != experts):
        turned = rank in b.shape or other in a.shape
        hint = "; one of them looks transposed" if turned else ""
        raise MisfitError(
            f"the halves do not meet: {a.key} {a.shape} has rank {rank}, {b.key} {b.shape} has rank {other}{hint}",
            [b.key, a.key],
        )
    return inputs, outputs, rank, experts


def join(
    module: str,
    halves: dict[str, Tensor],
    scale: Scale,
    *,
    torch_layout: bool,
) -> Pair:
    """One pair from tensors keyed by role: a, b, and perhaps magnitude and bias."""
    missing = [role for role in ("a", "b") if role not in halves]
    if missing:
        present = next(iter(halves.values())).key
        raise MisfitError(f"{present} has no other half: lora_{missing[0].upper()} of {module} is missing", [present])
    for tensor in halves.values():
        if tensor.dtype not in FLOATS:
            raise MisfitError(f"{tensor.key} is of type {tensor.dtype}, not a float type", [tensor.key])
    a, b = halves["a"], halves["b"]
    inputs, outputs, rank, experts = dims(a, b, torch_layout)
    if scale.rank is not None and scale.rank != rank:
        raise ScaleError(
            f"the configuration says rank {scale.rank} for {module} ({scale.source}), but {a.key} has rank {rank}",
            [a.key],
        )
    magnitude, bias = halves.get("magnitude"), halves.get("bias")
    if bias is not None and bias.shape != (outputs,):
        raise MisfitError(f"{bias.key} has shape {bias.shape}, not {(outputs,)}", [bias.key])
    return Pair(
        module, (a.key,), (b.key,), torch_layout, inputs, outputs, rank, scale, experts,
        magnitude.key if magnitude else None, math.prod(magnitude.shape) if magnitude else 0,
        bias.key if bias else None,
    )  # fmt: skip


def all_or_raise(problems: list[MisfitError]) -> None:
    """One refusal that lists every problem found, the first ones in words."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        keys = [key for problem in problems for key in problem.keys]
        raise MisfitError(listing([problem.message for problem in problems]), keys)
