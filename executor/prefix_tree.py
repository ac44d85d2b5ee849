"""A tree of token blocks: which prefixes are known, what each block holds, and which one goes when room is short.

Plain Python. A block's payload is opaque here; the executor thread owns the tree.

Every block of ids is stored once, under the block that comes before it, so entries that begin alike share their
blocks. A match may end inside a block: the longest exact prefix counts, not the number of whole blocks.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

BLOCK = 32  # ids; what a restart has to prefill again is at most one block


@dataclass(slots=True, eq=False)
class Block:
    """`ids` after `parent`. A root has no parent and no ids; its key is the identity that its entries live under."""

    key: bytes
    ids: tuple[int, ...] = ()
    parent: "Block | None" = None
    payload: Any = None
    nbytes: int = 0
    chain_bytes: int = 0
    children: "dict[tuple[int, ...], Block]" = field(default_factory=dict)


def key_of(parent: bytes, ids: Sequence[int]) -> bytes:
    """The name of a block: a hash over everything that its keys and values depend on."""
    return hashlib.blake2b(parent + b"".join(i.to_bytes(4, "little") for i in ids), digest_size=20).digest()


@dataclass(frozen=True, slots=True)
class Match:
    """`block`'s first `length` ids agree with the prompt."""

    block: Block
    length: int


class PrefixTree:
    """Holds at most `limit` bytes of payload. No single chain may hold more than `share` of that.

    Least recently used blocks go first. A hit touches a chain from its end to its root, so a block is never older
    than one that follows it, and the oldest block is always the end of its chain.
    """

    def __init__(self, limit: int, share: float = 0.5) -> None:
        self.limit = limit
        self.share = share
        self.nbytes = 0
        self._roots: dict[bytes, Block] = {}
        self._by_age: OrderedDict[Block, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_age)

    def root(self, identity: bytes) -> Block:
        return self._roots.setdefault(identity, Block(key_of(identity, ())))

    def match(self, identity: bytes, ids: Sequence[int]) -> list[Match]:
        """The longest stored prefix of `ids`, block by block."""
        found: list[Match] = []
        here, at = self.root(identity), 0
        while at < len(ids):
            child = here.children.get(tuple(ids[at : at + BLOCK]))
            if child is None:
                found += self._partly(here, ids[at : at + BLOCK])
                break
            found.append(Match(child, len(child.ids)))
            here, at = child, at + len(child.ids)
        self.touch(found[-1].block if found else None)
        return found

    def _partly(self, parent: Block, ids: Sequence[int]) -> Iterator[Match]:
        """The child that agrees longest with what is left, if any does at all."""
        best, length = None, 0
        for child in parent.children.values():
            agreed = common(child.ids, ids)
            if agreed > length:
                best, length = child, agreed
        if best is not None:
            yield Match(best, length)

    def insert(self, parent: Block, ids: tuple[int, ...], payload: Any, nbytes: int) -> Block | None:
        """Store a block; None where it would take its chain over its share."""
        if parent.chain_bytes + nbytes > self.share * self.limit:
            return None
        block = Block(key_of(parent.key, ids), ids, parent, payload, nbytes, parent.chain_bytes + nbytes)
        parent.children[ids] = block
        self.nbytes += nbytes
        self.touch(block)
        self._shrink()
        return block if ids in parent.children else None

    def drop_ends_of(self, parent: Block, ids: tuple[int, ...]) -> None:
        """Forget the shorter ends that a block with these ids makes superfluous."""
        for child in [c for c in parent.children.values() if len(c.ids) < len(ids) and ids[: len(c.ids)] == c.ids]:
            self._drop(child)

    def clear(self) -> None:
        self._roots.clear()
        self._by_age.clear()
        self.nbytes = 0

    def touch(self, block: Block | None) -> None:
        while block is not None and block.parent is not None:
            self._by_age[block] = None
            self._by_age.move_to_end(block)
            block = block.parent

    def _shrink(self) -> None:
        while self.nbytes > self.limit:
            self._drop(next(iter(self._by_age)))

    def _drop(self, block: Block) -> None:
        assert block.parent is not None and not block.children
        del block.parent.children[block.ids], self._by_age[block]
        self.nbytes -= block.nbytes
        block.payload = None


def common(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """How many leading ids agree."""
    length = 0
    for a, b in zip(ours, theirs, strict=False):
        if a != b:
            break
        length += 1
    return length
