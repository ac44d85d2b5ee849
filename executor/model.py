"""Loads an mlx-lm model folder, and says what was loaded.

Runs on the executor thread only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import dequantize_model, load_model

from ..lora.bank import AdapterBank
from ..lora.files import content_hash, open_adapter
from ..lora.merge import merge_adapter
from . import device, kv
from .concrete import make_concrete
from .errors import ModelLoadError
from .settings import EngineSettings, MergedAdapter, ModelFacts

CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx")
UNSTATED_CONTEXT = 32_768
USUAL_CHUNK = 256  # ids: what a CPU reads in the time that a chunk may take, seldom more
MEMORY_SHARE = 0.9  # of the device's memory, unless a limit is set


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The network, its adapters and its facts."""

    network: Any
    facts: ModelFacts
    bank: AdapterBank
    kv_bits: int | None = None

    def new_layers(self) -> kv.Layers:
        """Empty caches for one row."""
        return kv.make(self.network, self.kv_bits)

    def forward(self, ids: mx.array, layers: kv.Layers, slots: Sequence[int]) -> mx.array:
        """ids[B, L], the rows' caches, and each row's adapter -> logits[B, L, V]."""
        self.bank.select(slots)
        logits: mx.array = self.network(ids, cache=layers)
        return logits


def load(settings: EngineSettings, tick: Callable[[], None]) -> LoadedModel:
    """Load the folder in the type that suits the device and make every array concrete.

    Raises ModelLoadError with one line for the operator.
    """
    try:
        network, config = load_model(settings.model, lazy=True, trust_remote_code=settings.trust_remote_code)
        tick()
        network, quantized = _suit_device(network)
        network.eval()
        _evaluate_by_parts(network, tick)
        make_concrete(network)
        facts = _facts(network, config, settings, quantized)
    except Exception as error:
        raise ModelLoadError(f"{settings.model}: {_one_line(error)}") from error
    if settings.merge_adapter is not None:
        try:
            facts = replace(facts, merged=_merge(network, settings.merge_adapter, tick))
        except Exception as error:
            raise ModelLoadError(f"adapter {settings.merge_adapter}: {_one_line(error, 600)}") from error
    bank = AdapterBank(network)
    for name, path in settings.adapters:
        try:
            bank.load(name, path)
            tick()
        except Exception as error:
            raise ModelLoadError(f"adapter {name} ({path}): {_one_line(error)}") from error
    return LoadedModel(network, facts, bank, settings.kv_bits)


def _merge(network: Any, path: Path, tick: Callable[[], None]) -> MergedAdapter:
    """Into the weights as they are served. Raises StrengthError if these cannot carry the adapter at its strength."""
    report = merge_adapter(network, path, on_module=lambda done, total: tick())
    make_concrete(network)
    mx.clear_cache()
    worst = report.worst
    return MergedAdapter(
        path=str(path),
        content_hash=content_hash(open_adapter(path)),
        summary=report.summary,
        median_strength=report.median,
        worst_strength=worst.strength if worst else None,
        worst_module=worst.module if worst else None,
        effective_scale=report.effective_scale,
    )


def _suit_device(network: Any) -> tuple[Any, bool]:
    """On the CPU backend half types and quantised kernels are scalar: use float32 where memory allows it."""
    quantized = any(hasattr(m, "bits") for _, m in network.named_modules())
    if not device.on_cpu():
        return network, quantized
    if quantized and _float32_bytes(network) < 0.6 * device.total_memory():
        network, quantized = dequantize_model(network), False
    network.set_dtype(mx.float32)
    return network, quantized


def _float32_bytes(network: Any) -> int:
    total = 0
    for _, module in network.named_modules():
        bits = getattr(module, "bits", None)
        for name, value in module.items():
            if isinstance(value, mx.array):
                total += value.nbytes * 32 // bits if bits and name == "weight" else value.size * 4
    return total


def _evaluate_by_parts(network: Any, tick: Callable[[], None]) -> None:
    """Layer by layer, so that loading a large model keeps a heartbeat."""
    for _, module in network.named_modules():
        own = [value for value in module.values() if isinstance(value, mx.array)]
        if own:
            mx.eval(own)
            tick()


def _facts(network: nn.Module, config: dict[str, Any], settings: EngineSettings, quantized: bool) -> ModelFacts:
    layers = kv.make(network, settings.kv_bits)
    logits = network(mx.array([[0]]), cache=layers)
    mx.eval(logits)
    context = _context_length(config)
    costs = [kv.cost_of(layer) for layer in layers]
    floats = [p.dtype for _, p in tree_flatten(network.parameters()) if mx.issubdtype(p.dtype, mx.floating)]
    return ModelFacts(
        vocab_size=logits.shape[-1],
        context_length=min(context, settings.max_context or context),
        model_type=str(config["model_type"]),
        weights_bytes=sum(p.nbytes for _, p in tree_flatten(network.parameters())),
        dtype=str(max(set(floats), key=floats.count)).removeprefix("mlx.core."),
        quantized=quantized,
        batched=kv.can_batch(layers),
        row_bytes=sum(cost.row for cost in costs),
        token_bytes=sum(cost.token for cost in costs),
        scratch_bytes=_scratch_bytes(config, settings),
        memory_bytes=settings.memory_limit or int(MEMORY_SHARE * device.total_memory()),
    )


def _scratch_bytes(config: dict[str, Any], settings: EngineSettings) -> int:
    """Attention scores of one prefill chunk, an id of context: only the CPU backend writes them out, in float32."""
    heads = config.get("num_attention_heads") or (config.get("text_config") or {}).get("num_attention_heads") or 0
    return int(heads) * min(settings.prefill_chunk, USUAL_CHUNK) * 4 if device.on_cpu() else 0


def _context_length(config: dict[str, Any]) -> int:
    for part in (config, config.get("text_config") or {}):
        for key in CONTEXT_KEYS:
            value = part.get(key)
            if isinstance(value, int) and value > 0:
                return value
    return UNSTATED_CONTEXT


def _one_line(error: Exception, most: int = 300) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else text[: most - 3] + "..."
