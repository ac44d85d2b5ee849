"""What the rest of the daemon may know about a loaded adapter. Plain Python: crosses the thread."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """content_hash: SHA-256 of its files; the prefix cache keys its entries by it, so that no two adapters share one.
    factor: what B A is multiplied by, None for a full fine-tune; several when PEFT's patterns differ by module.
    size: bytes held in memory."""

    name: str
    path: str
    format: str
    content_hash: str
    ranks: tuple[int, ...]
    factors: tuple[float, ...]
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    pairs: int
    replaced: int
    size: int
    summary: str

    @property
    def rank(self) -> int | None:
        return self.ranks[-1] if self.ranks else None

    @property
    def factor(self) -> float | None:
        return self.factors[0] if len(self.factors) == 1 else None
