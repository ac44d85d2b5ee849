"""Prefixes that need no second prefill: keys and values kept by block, or whole states where a cache cannot be cut.

Runs on the executor thread only. Whatever is kept is evaluated before it is kept; a save that fails keeps nothing.
"""

import copy
from collections import deque
from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import KVCache

from . import kv
from .prefix_disk import DiskTier, Stored
from .prefix_tree import BLOCK, Block, Match, PrefixTree, key_of

Cut = Callable[[int, int], list[mx.array]]
"""`cut(start, stop)`: keys and values of that range of ids, layer by layer: k0, v0, k1, v1, ..., [1, H, n, D] each."""


class PrefixCache:
    """The longest exact prefix of a prompt, whichever request it came from.

    `limit`: bytes kept at most. `new_layers` makes empty caches of the model's own kinds. `disk`: where whole blocks
    are kept beyond this process; caches that cannot be cut stay in memory only.
    """

    def __init__(self, limit: int, new_layers: Callable[[], kv.Layers], disk: DiskTier | None = None) -> None:
        self.tree = PrefixTree(limit)
        self.unsaved: deque[Block] = deque()
        self._disk = disk
        self.hits = self.misses = self.tokens_saved = 0
        self._new_layers = new_layers
        self.by_blocks = all(type(layer) is KVCache for layer in new_layers())

    @property
    def nbytes(self) -> int:
        return self.tree.nbytes

    def restore(self, identity: bytes, ids: Sequence[int]) -> tuple[kv.Layers, int]:
        """Caches for a row that begins with `ids`, and how many of them they already hold: at most all but one."""
        usable = ids[: len(ids) - 1]
        layers, length = self._shared(identity, usable) if self.by_blocks else self._whole(identity, usable)
        self.hits += length > 0
        self.misses += length == 0
        self.tokens_saved += length
        return layers, length

    def _shared(self, identity: bytes, ids: Sequence[int]) -> tuple[kv.Layers, int]:
        layers = self._new_layers()
        if self._disk is not None:
            self._fetch(self._disk, identity, ids)
        found = self.tree.match(identity, ids)
        length = sum(match.length for match in found)
        if length:
            for index, layer in enumerate(layers):
                room = -(-(len(ids) + 1) // layer.step) * layer.step
                layer.keys = joined(found, 2 * index, room)
                layer.values = joined(found, 2 * index + 1, room)
                layer.offset = length
            mx.eval(kv.arrays(layers))
        return layers, length

    def _fetch(self, disk: DiskTier, identity: bytes, ids: Sequence[int]) -> None:
        """Bring the blocks that follow the known ones back from the disk, as far as it has them."""
        here, at = self._known(identity, ids)
        while at + BLOCK <= len(ids) and disk.has(key := key_of(here.key, ids[at : at + BLOCK])):
            part = tuple(ids[at : at + BLOCK])
            stored = disk.load(key, part)
            if stored is None:
                return
            arrays = from_numpy(stored)
            block = self.tree.insert(here, part, arrays, sum(array.nbytes for array in arrays))
            if block is None:
                return
            here, at = block, at + BLOCK

    def save_one(self) -> None:
        """Hand one block over to be written: a copy out of the device's memory, little enough for one step."""
        block = self.unsaved.popleft()
        if self._disk is not None and block.payload is not None and not self._disk.has(block.key):
            self._disk.save(block.key, block.ids, to_numpy(block.payload))

    def _whole(self, identity: bytes, ids: Sequence[int]) -> tuple[kv.Layers, int]:
        """The longest kept state whose ids are all a prefix of these: it can be restored, not shortened."""
        prompt, known = tuple(ids), self.tree.root(identity).children.values()
        fitting = [block for block in known if prompt[: len(block.ids)] == block.ids]
        if not fitting:
            return self._new_layers(), 0
        best = max(fitting, key=lambda block: len(block.ids))
        self.tree.touch(best)
        layers = copy.deepcopy(best.payload)
        mx.eval(kv.arrays(layers))
        return layers, len(best.ids)

    def keep_blocks(self, identity: bytes, ids: Sequence[int], cut: Cut, *, tail: bool) -> None:
        """Store the blocks of `ids` that are not known yet; with `tail`, the last, shorter one too."""
        here, at = self._known(identity, ids)
        while at < len(ids):
            part = tuple(ids[at : at + BLOCK])
            if len(part) < BLOCK and not tail:
                return
            arrays = cut(at, at + len(part))
            mx.eval(arrays)
            self.tree.drop_ends_of(here, part)
            block = self.tree.insert(here, part, arrays, sum(array.nbytes for array in arrays))
            if block is None:
                return
            if self._disk is not None and len(part) == BLOCK:
                self.unsaved.append(block)
            here, at = block, at + len(part)

    def _known(self, identity: bytes, ids: Sequence[int]) -> tuple[Block, int]:
        here, at = self.tree.root(identity), 0
        while (child := here.children.get(tuple(ids[at : at + BLOCK]))) is not None and child.ids:
            here, at = child, at + len(child.ids)
        return here, at

    def keep_whole(self, identity: bytes, ids: Sequence[int], layers: kv.Layers) -> None:
        """Keep a row's state after `ids`. `layers` is copied."""
        root, known = self.tree.root(identity), tuple(ids)
        if not known or known in root.children:
            return
        layers = copy.deepcopy(layers)
        mx.eval(kv.arrays(layers))
        self.tree.insert(root, known, layers, sum(layer.nbytes for layer in layers))


def joined(found: Sequence[Match], which: int, room: int) -> mx.array:
    """The blocks' arrays end to end, in one copy, with room for the rest of the prompt behind them."""
    parts = [match.block.payload[which] for match in found]
    parts[-1] = parts[-1][:, :, : found[-1].length]
    have = sum(match.length for match in found)
    _, heads, _, width = parts[0].shape
    if room > have:
        parts.append(mx.zeros((1, heads, room - have, width), parts[0].dtype))
    return mx.concatenate(parts, axis=2)


def cut_of(layers: kv.Layers) -> Cut:
    """Cuts of one row's own caches."""
    return lambda start, stop: [taken(part, start, stop) for layer in layers for part in (layer.keys, layer.values)]


def cut_of_row(layers: kv.Layers, index: int, fed: int) -> Cut:
    """Cuts of row `index` of a batch: it holds `fed` ids, right-aligned behind its padding."""

    def cut(start: int, stop: int) -> list[mx.array]:
        return [
            taken(part[index : index + 1], layer.size() - fed + start, layer.size() - fed + stop)
            for layer in layers
            for part in (layer.keys, layer.values)
        ]

    return cut


def taken(part: mx.array, start: int, stop: int) -> mx.array:
    """A gather and not a slice: a slice would keep the whole row's buffer alive behind a small entry."""
    return mx.take(part, mx.arange(start, stop), axis=2)


def to_numpy(arrays: Sequence[mx.array]) -> Stored:
    """Copies for the writer's thread. NumPy has no bfloat16: its bits travel as uint16."""
    half = arrays[0].dtype == mx.bfloat16
    # In order "C": safetensors writes the memory of a strided array as if it had no strides.
    values = tuple(np.array(array.view(mx.uint16) if half else array, order="C") for array in arrays)
    return Stored(values, str(arrays[0].dtype))


def from_numpy(stored: Stored) -> list[mx.array]:
    arrays = [mx.array(values) for values in stored.arrays]
    if stored.dtype == str(mx.bfloat16):
        arrays = [array.view(mx.bfloat16) for array in arrays]
    mx.eval(arrays)
    return arrays
