"""Puts the prefix cache to use: what a prompt may start from, what a chunk or a finished row leaves behind.

Runs on the executor thread only. A cache that fails costs a prefill, never a request: whatever goes wrong here is
noted, the entries concerned are dropped, and the answer goes on.
"""

from collections.abc import Callable

from . import kv
from .fingerprint import of_folder
from .prefill import Prefill
from .prefix_cache import PrefixCache, cut_of, cut_of_row
from .prefix_disk import DiskTier
from .sequence import Sequence
from .settings import EngineSettings


class PrefixKeeper:
    """`kv_type`: the type that keys and values have here; `adapter`: the content of a row's adapter, empty for none.

    Both are part of what an entry is known by.
    """

    def __init__(
        self,
        settings: EngineSettings,
        kv_type: str,
        adapter: Callable[[Sequence], bytes],
        new_layers: Callable[[], kv.Layers],
        note: Callable[[Exception], None],
    ) -> None:
        self.disk: DiskTier | None = None
        self._model = of_folder(settings.model) + kv_type.encode()
        self._adapter = adapter
        self._new_layers = new_layers
        self._note = note
        if settings.cache_dir is not None:
            self.disk = DiskTier(settings.cache_dir / self._model[:16].hex(), settings.cache_dir_bytes)
        self.cache = PrefixCache(settings.prefix_cache_bytes, new_layers, self.disk)

    def _identity(self, row: Sequence) -> bytes:
        """What a row's keys and values depend on besides its ids."""
        return self._model + self._adapter(row)

    def begin(self, job: Prefill) -> None:
        """Give a prompt its caches, with the longest known prefix in them."""
        try:
            job.begin(*self.cache.restore(self._identity(job.rows[0]), job.ids))
        except Exception as error:
            self._give_up(error)
            job.begin(self._new_layers(), 0)

    def after_chunk(self, job: Prefill) -> None:
        """Keep what a chunk has brought, so that another prompt can use it before this one has finished."""
        assert job.layers is not None
        try:
            identity, complete = self._identity(job.rows[0]), job.remaining <= 0
            if self.cache.by_blocks:
                self.cache.keep_blocks(identity, job.ids[: job.done], cut_of(job.layers), tail=complete)
            elif complete:
                self.cache.keep_whole(identity, job.ids[: job.done], job.layers)
        except Exception as error:
            self._give_up(error)

    def on_leave(self, row: Sequence, layers: kv.Layers, index: int) -> None:
        """Keep what a row has generated: the next turn of its conversation begins with it."""
        ids = row.fed
        if row.request.probe or not ids:
            return
        try:
            identity = self._identity(row)
            if self.cache.by_blocks:
                batched = hasattr(layers[0], "left_padding")
                cut = cut_of_row(layers, index, row.fed_count) if batched else cut_of(layers)
                self.cache.keep_blocks(identity, ids, cut, tail=True)
            elif len(ids) == row.fed_count:
                single = kv.extract(layers, index) if hasattr(layers[0], "extract") else layers
                self.cache.keep_whole(identity, ids, single)
        except Exception as error:
            self._give_up(error)

    def save_some(self) -> None:
        """One block a round goes towards the disk, so that no step waits for it."""
        if self.cache.unsaved:
            try:
                self.cache.save_one()
            except Exception as error:
                self._note(error)

    def close(self) -> None:
        """Write what is still unwritten, as far as a moment allows."""
        while self.cache.unsaved:
            self.save_some()
        if self.disk is not None:
            self.disk.close()

    def _give_up(self, error: Exception) -> None:
        """Nothing that a failure may have touched is kept."""
        self._note(error)
        self.cache.tree.clear()
