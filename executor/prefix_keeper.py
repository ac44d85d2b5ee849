"""Puts the prefix cache to use: what a prompt may start from, what a chunk or a finished row leaves behind.

Runs on the executor thread only. A cache that fails costs a prefill, never a request: whatever goes wrong here is
noted, the entries concerned are dropped, and the answer goes on.
"""

from collections.abc import Callable

from . import kv
from .prefill import Prefill
from .prefix_cache import PrefixCache, cut_of, cut_of_row
from .sequence import Sequence

Identity = Callable[[Sequence], bytes]
"""What a row's keys and values depend on besides its ids: model, adapter content, format of the caches."""


class PrefixKeeper:
    def __init__(
        self,
        cache: PrefixCache,
        identity: Identity,
        new_layers: Callable[[], kv.Layers],
        note: Callable[[Exception], None],
    ) -> None:
        self.cache = cache
        self._identity = identity
        self._new_layers = new_layers
        self._note = note

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

    def _give_up(self, error: Exception) -> None:
        """Nothing that a failure may have touched is kept."""
        self._note(error)
        self.cache.tree.clear()
