"""What an adapter consists of, whoever wrote it: low-rank pairs and whole parameters, still on the disk. No MLX."""

from dataclasses import dataclass

from .files import AdapterFiles
from .scale import Scale


@dataclass(frozen=True, slots=True)
class Pair:
    """The change factor * B A of one module.

    a, b: keys of the two halves; one each, or one per expert, to be stacked. torch_layout: the file holds
    (rank, inputs) and (outputs, rank) as PEFT does, else (inputs, rank) and (rank, outputs); a stack of experts that
    mlx-lm wrote is one tensor (experts, rank, inputs) and (experts, outputs, rank). For an embedding, `inputs` is its
    number of ids. magnitude: DoRA's vector (Liu et al. 2024, arXiv:2402.09353), `magnitudes` long. bias: of B, added
    with the factor.
    """

    module: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    torch_layout: bool
    inputs: int
    outputs: int
    rank: int
    scale: Scale
    experts: int = 0
    magnitude: str | None = None
    magnitudes: int = 0
    bias: str | None = None


@dataclass(frozen=True, slots=True)
class Whole:
    """One parameter of one module that the adapter replaces altogether."""

    module: str
    parameter: str
    key: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Adapter:
    """claims: module name endings that the configuration says are adapted; () if it does not list them."""

    files: AdapterFiles
    format: str
    pairs: tuple[Pair, ...]
    wholes: tuple[Whole, ...]
    claims: tuple[str, ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({pair.rank for pair in self.pairs}))

    @property
    def factors(self) -> tuple[float, ...]:
        return tuple(sorted({pair.scale.factor for pair in self.pairs}))

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(sorted({pair.scale.source for pair in self.pairs}))

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(sorted({pair.module for pair in self.pairs} | {whole.module for whole in self.wholes}))

    @property
    def targets(self) -> tuple[str, ...]:
        """Last names of the adapted modules: q_proj, lm_head ..."""
        return tuple(sorted({module.rsplit(".", 1)[-1] for module in self.modules}))
