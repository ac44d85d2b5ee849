"""The adapters of one loaded model, and which of them acts on which row. Runs on the executor thread only.

Pairs that belong together: load/unload, retain/release (one per running request), and select before every forward.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.switch_layers import SwitchGLU, SwitchMLP

from .errors import AdapterError, ServingError, UnknownAdapter, listing
from .files import content_hash
from .fit import Fitted, fit
from .formats import read_adapter
from .info import AdapterInfo
from .layers import Adapted, adapted
from .mixture import AdaptedExperts, AdaptedMixture
from .modules import is_leaf, kind_of_module, places, shape_of
from .parts import Adapter
from .rows import Rows, Selection
from .stack import Share, share_of
from .tensors import Change, load_changes

BASE = 0


@dataclass(slots=True)
class Loaded:
    """One adapter in the bank. users: running requests. retired: unloaded by name, freed when the last user ends."""

    info: AdapterInfo
    modules: tuple[str, ...]
    users: int = 0
    retired: bool = False


class AdapterBank:
    """Layers are wrapped when the first adapter touches them and unwrapped when the last one leaves."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._places = places(model)
        self._shapes = {name: shape_of(place.module) for name, place in self._places.items()}
        self._rows = Rows()
        self._layers: dict[str, Adapted] = {}
        self._mixtures: dict[str, AdaptedMixture] = {}
        self._loaded: dict[int, Loaded] = {}
        self._slots: dict[str, int] = {}

    def load(self, name: str, path: Path) -> AdapterInfo:
        """Load an adapter, wrap what it changes, and prove that a forward reaches all of it.

        Raises AdapterError; then nothing of it is kept and the other adapters are as they were.
        """
        if name in self._slots:
            raise AdapterError(f"an adapter named {name!r} is loaded already")
        adapter = read_adapter(path)
        fitted = fit(adapter, self._shapes)
        changes = load_changes(adapter, fitted)
        self._check_servable(changes)
        shares = {module: share_of(self._places[module].module, change) for module, change in changes.items()}
        del changes
        slot = next(number for number in range(1, len(self._loaded) + 2) if number not in self._loaded)
        try:
            for module, share in shares.items():
                self._layer(module).stack.add(slot, share)
            self._prove(slot, set(shares))
        except BaseException:
            self._remove(slot, tuple(shares))
            mx.clear_cache()
            raise
        info = _info(name, path, adapter, fitted, list(shares.values()))
        self._loaded[slot] = Loaded(info, tuple(shares))
        self._slots[name] = slot
        mx.clear_cache()  # what loading used in between must not sit in the buffer pool
        return info

    def unload(self, name: str) -> bool:
        """Forget the name at once; free the memory now (returns True) or with the last release."""
        slot = self.slot(name)
        del self._slots[name]
        self._loaded[slot].retired = True
        return self._free_if_unused(slot)

    def slot(self, name: str | None) -> int:
        """The adapter's number for `select`; None is the base model. Raises UnknownAdapter."""
        if name is None:
            return BASE
        if name not in self._slots:
            raise UnknownAdapter(f"no adapter named {name!r} is loaded", [name])
        return self._slots[name]

    def info(self, slot: int) -> AdapterInfo | None:
        return self._loaded[slot].info if slot != BASE else None

    def infos(self) -> tuple[AdapterInfo, ...]:
        """The adapters that can be asked for by name."""
        return tuple(self._loaded[slot].info for slot in self._slots.values())

    def retain(self, slot: int) -> None:
        """A request starts to use the slot: it will not be freed before `release`."""
        if slot != BASE:
            self._loaded[slot].users += 1

    def release(self, slot: int) -> None:
        """The request has ended."""
        if slot == BASE:
            return
        loaded = self._loaded[slot]
        assert loaded.users > 0, "released more often than retained"
        loaded.users -= 1
        self._free_if_unused(slot)

    def select(self, slots: Sequence[int]) -> None:
        """The slots of the rows of the next forwards, in row order. All base: the layers' plain path."""
        wanted = tuple(slots)
        if not any(wanted):
            self._rows.current = None
        elif self._rows.current is None or self._rows.current.slots != wanted:
            self._rows.current = Selection(wanted)

    def _free_if_unused(self, slot: int) -> bool:
        loaded = self._loaded[slot]
        if not loaded.retired or loaded.users:
            return False
        del self._loaded[slot]
        self._rows.current = None
        self._remove(slot, loaded.modules)
        mx.clear_cache()
        return True

    def _check_servable(self, changes: dict[str, Change]) -> None:
        problems = []
        for name, change in changes.items():
            place = self._places[name]
            if kind_of_module(place.module) == "experts":
                parent = self._places[place.parent].module
                if not isinstance(parent, SwitchGLU | SwitchMLP):
                    problems.append(f"{name} is an expert layer of {type(parent).__name__}")
            elif change.wholes and not is_leaf(place.module):
                problems.append(f"{name} ({type(place.module).__name__}) is replaced, but is no layer of its own")
            if change.low and change.low.magnitude is not None and "bias" in change.wholes:
                problems.append(f"{name} has DoRA magnitudes and a replaced bias")
        if problems:
            raise ServingError(f"cannot be applied row by row, merge it instead: {listing(problems)}", problems)

    def _layer(self, name: str) -> Adapted:
        if name not in self._layers:
            place = self._places[name]
            if kind_of_module(place.module) == "experts":
                mixture = self._mixture(place.parent)
                layer: Adapted = AdaptedExperts(place.module, self._rows, name, mixture.group)
            else:
                layer = adapted(place.module, self._rows, name)
            place.put(layer)
            self._layers[name] = layer
        return self._layers[name]

    def _mixture(self, name: str) -> AdaptedMixture:
        if name not in self._mixtures:
            place = self._places[name]
            self._mixtures[name] = AdaptedMixture(place.module, self._rows)
            place.put(self._mixtures[name])
        return self._mixtures[name]

    def _remove(self, slot: int, modules: tuple[str, ...]) -> None:
        for name in modules:
            layer = self._layers.get(name)
            if layer is None:
                continue
            if slot in layer.stack.shares:
                layer.stack.remove(slot)
            if not layer.stack.shares:
                self._places[name].put(layer.base)
                del self._layers[name]
        for name in list(self._mixtures):
            if not any(self._places[module].parent == name for module in self._layers):
                self._places[name].put(self._mixtures.pop(name).base)

    def _prove(self, slot: int, modules: set[str]) -> None:
        """One token through the model: a layer that the model bypasses would leave its pair without effect."""
        before = self._rows.current
        self._rows.current, self._rows.reached = Selection([slot]), set()
        try:
            mx.eval(self.model(mx.array([[0]])))
            missed = sorted(modules - self._rows.reached)
        except Exception as error:
            raise ServingError(f"the model does not run with this adapter: {error}") from error
        finally:
            self._rows.current, self._rows.reached = before, None
        if missed:
            raise ServingError(f"a forward does not reach {listing(missed)}: merge it instead", missed)


def _info(name: str, path: Path, adapter: Adapter, fitted: Fitted, shares: list[Share]) -> AdapterInfo:
    size = sum(array.nbytes for share in shares for array in share.arrays())
    return AdapterInfo(
        name, str(path), adapter.format, content_hash(adapter.files), adapter.ranks, adapter.factors, adapter.sources,
        adapter.targets, len(fitted.pairs), len(fitted.wholes), size, fitted.summary(),
    )  # fmt: skip
