"""How the executor is set up: one frozen value, read from the daemon's configuration. Plain Python, no MLX."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """model: an mlx-lm model folder. Times in seconds."""

    model: Path
    adapters: tuple[tuple[str, Path], ...] = ()
    merge_adapter: Path | None = None
    max_context: int | None = None
    max_batch: int = 8
    max_queue: int = 64
    prefill_chunk: int = 2048
    kv_bits: int | None = None
    prefix_cache_bytes: int = 2 << 30
    cache_dir: Path | None = None
    cache_dir_bytes: int = 8 << 30
    memory_limit: int | None = None
    stall_after: float = 60.0
    load_stall_after: float = 600.0
    respawns: int = 3
    respawn_window: float = 300.0
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True)
class MergedAdapter:
    """The adapter that is in the weights, and the strength that was measured there (1 is the trained one)."""

    path: str
    content_hash: str
    summary: str
    median_strength: float | None
    worst_strength: float | None
    worst_module: str | None
    effective_scale: float | None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the loaded model is, for the door: vocab_size is the width of its logits.

    A row of n ids takes `row_bytes + n * token_bytes` of caches, and `scratch_bytes` an id while it is prefilled.
    memory_bytes: what weights, rows and scratch may take together.
    """

    vocab_size: int
    context_length: int
    model_type: str
    weights_bytes: int
    dtype: str
    quantized: bool
    batched: bool
    row_bytes: int = 0
    token_bytes: int = 0
    scratch_bytes: int = 0
    memory_bytes: int = 1 << 62
    merged: MergedAdapter | None = None
