"""The KV caches of rows, through mlx-lm's own cache classes: one row's layers, and the batch's layers made of them.

Runs on the executor thread only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache, KVCache, QuantizedKVCache, make_prompt_cache

Layers = list[Any]
"""One mlx-lm cache per layer (or group of layers) of the model."""

BATCH_VERBS = ("merge", "filter", "extend", "extract")


def make(network: Any, bits: int | None = None) -> Layers:
    """Empty caches for one row. With `bits`, plain keys and values are kept quantised; other kinds stay as they are.

    mlx-lm's quantised cache has no batched form, so a model that uses it is served one row at a time.
    """
    layers = make_prompt_cache(network)
    if bits is None:
        return layers
    return [QuantizedKVCache(group_size=_group_size(network), bits=bits) if type(c) is KVCache else c for c in layers]


def _group_size(network: Any) -> int:
    """As many values share a scale as divide a head evenly."""
    arguments = network.args
    heads = getattr(arguments, "num_attention_heads", 1)
    width = getattr(arguments, "head_dim", None) or getattr(arguments, "hidden_size", 64) // heads
    for size in (64, 32):
        if width % size == 0:
            return size
    raise ValueError(f"kv_bits needs heads of a multiple of 32 values, this model's have {width}")


def reserve(layers: Layers, length: int) -> None:
    """Have empty plain caches allocate for `length` ids at once: growing by 256 copies all there is each time."""
    for layer in layers:
        if type(layer) is KVCache and layer.empty():
            layer.step = -(-length // KVCache.step) * KVCache.step


def can_batch(layers: Layers) -> bool:
    """Whether every layer's cache has a batched form with the verbs that rows joining and leaving need."""
    return all(_batched_form(layer) for layer in layers)


def _batched_form(layer: Any) -> bool:
    inner = getattr(layer, "caches", None)
    if inner is not None:
        return all(_batched_form(cache) for cache in inner)
    if not hasattr(layer, "merge"):
        return False
    try:
        merged = layer.merge([layer])
    except (AttributeError, NotImplementedError):
        return False
    return all(hasattr(merged, verb) for verb in BATCH_VERBS[1:])


def merge(rows: Sequence[Layers]) -> Layers:
    """The batch's layers made of single rows' layers, in their order. The rows' own are not to be used any more."""
    if len(rows) == 1 and all(type(layer) is KVCache and not layer.empty() for layer in rows[0]):
        return [_adopted(layer) for layer in rows[0]]
    return [layers[0].merge(list(layers)) for layers in zip(*rows, strict=True)]


def _adopted(layer: KVCache) -> BatchKVCache:
    """A batch of one over the row's own buffers, with the room behind them: nothing is copied."""
    batch = BatchKVCache([0])
    batch.state = layer.keys, layer.values, mx.array([layer.offset]), mx.array([0]), layer.offset
    return batch


def extend(batch: Layers, joining: Layers) -> None:
    """Add the joining rows behind the batch's own."""
    for ours, theirs in zip(batch, joining, strict=True):
        if type(ours) is BatchKVCache and not ours.empty() and not theirs.empty():
            _extend_plain(ours, theirs)
        else:
            ours.extend(theirs)


def _extend_plain(ours: BatchKVCache, theirs: BatchKVCache) -> None:
    """As mlx-lm's own, but each row is written once: padding both sides and joining them writes a long row thrice."""
    length = max(ours.size(), theirs.size())
    room = (length // BatchKVCache.step + 1) * BatchKVCache.step
    pads = [length - cache.size() for cache in (ours, theirs)]
    joined = [_side_by_side(a, b, ours.size(), theirs.size(), length, room) for a, b in _pairs(ours, theirs)]
    offset = mx.concatenate([ours.offset, theirs.offset])
    padding = mx.concatenate([ours.left_padding + pads[0], theirs.left_padding + pads[1]])
    ours.state = joined[0], joined[1], offset, padding, length


def _pairs(ours: BatchKVCache, theirs: BatchKVCache) -> list[tuple[mx.array, mx.array]]:
    return [(ours.keys, theirs.keys), (ours.values, theirs.values)]


def _side_by_side(a: mx.array, b: mx.array, used_a: int, used_b: int, length: int, room: int) -> mx.array:
    """[B, H, n, D] and [C, H, m, D] -> [B + C, H, room, D], both right-aligned at `length`."""
    rows, heads, _, width = a.shape
    both = mx.zeros((rows + b.shape[0], heads, room, width), a.dtype)
    both[:rows, :, length - used_a : length] = a[:, :, :used_a]
    both[rows:, :, length - used_b : length] = b[:, :, :used_b]
    return both


def pad_right(batch: Layers, counts: Sequence[int]) -> None:
    """Announce that of the ids fed next only so many of each row are its own; the rest is padding at the end."""
    longest = max(counts)
    for layer in batch:
        layer.prepare(lengths=list(counts), right_padding=[longest - count for count in counts])


def close_gaps(batch: Layers) -> None:
    """Move each row's padding from its end to its beginning, where a batch has it."""
    for layer in batch:
        layer.finalize()


def keep(batch: Layers, indices: Sequence[int]) -> None:
    """Drop every row of the batch that is not among `indices`."""
    kept = mx.array(list(indices))
    for layer in batch:
        layer.filter(kept)


def extract(batch: Layers, index: int) -> Layers:
    """One row's layers, copied out of the batch."""
    return [layer.extract(index) for layer in batch]


def arrays(layers: Layers) -> list[Any]:
    return [layer.state for layer in layers]


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes of one layer's cache: `row` whatever its length, `token` for each id."""

    row: int = 0
    token: int = 0


def cost_of(layer: Any) -> Cost:
    """From a cache that has seen an id. A window costs all of itself, a recurrent state what it is."""
    inner = getattr(layer, "caches", None)
    if inner is not None:
        parts = [cost_of(cache) for cache in inner]
        return Cost(sum(part.row for part in parts), sum(part.token for part in parts))
    keys = getattr(layer, "keys", None)
    first = keys[0] if isinstance(keys, list | tuple) else keys
    if not isinstance(first, mx.array):
        return Cost(row=int(layer.nbytes))
    token = layer.nbytes // first.shape[2]
    window = getattr(layer, "max_size", None)
    return Cost(row=token * window) if window else Cost(token=token)
