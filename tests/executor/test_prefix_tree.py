"""The tree of prefixes against naive answers: longest match, one copy of what is shared, the promise in bytes."""

from hypothesis import given, settings
from hypothesis import strategies as st
from soloist.executor.prefix_tree import BLOCK, Block, PrefixTree, common

IDENTITY = b"model"
SIZE = 10  # bytes an id


def store(tree: PrefixTree, ids: list[int], identity: bytes = IDENTITY) -> None:
    """What the cache does with a row's ids."""
    here: Block | None = tree.root(identity)
    at = 0
    while here is not None and at < len(ids):
        part = tuple(ids[at : at + BLOCK])
        known = here.children.get(part)
        if known is None:
            tree.drop_ends_of(here, part)
            known = tree.insert(here, part, object(), SIZE * len(part))
        here, at = known, at + len(part)


def matched(tree: PrefixTree, ids: list[int], identity: bytes = IDENTITY) -> int:
    return sum(match.length for match in tree.match(identity, ids))


prompts = st.lists(st.lists(st.integers(0, 2), max_size=3 * BLOCK), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(prompts, st.lists(st.integers(0, 2), max_size=3 * BLOCK))
def test_the_longest_exact_prefix_is_found_whoever_left_it(known: list[list[int]], ids: list[int]) -> None:
    tree = PrefixTree(1 << 40)
    for prompt in known:
        store(tree, prompt)
    assert matched(tree, ids) == max(common(prompt, ids) for prompt in known)


@settings(max_examples=60, deadline=None)
@given(prompts, st.integers(1, 60))
def test_the_limit_in_bytes_is_a_promise(known: list[list[int]], blocks: int) -> None:
    tree = PrefixTree(blocks * BLOCK * SIZE)
    for prompt in known:
        store(tree, prompt)
        assert tree.nbytes <= tree.limit
        assert tree.nbytes == sum(block.nbytes for block in tree._by_age)
        assert all(block.parent is not None and block.payload is not None for block in tree._by_age)


def test_what_two_prompts_share_is_stored_once() -> None:
    tree = PrefixTree(1 << 20)
    shared = list(range(4 * BLOCK))
    store(tree, [*shared, 1])
    before = tree.nbytes
    store(tree, [*shared, 2])
    assert tree.nbytes == before + SIZE


def test_a_growing_conversation_keeps_one_end() -> None:
    tree = PrefixTree(1 << 20)
    for length in range(1, 3 * BLOCK, 7):
        store(tree, list(range(length)))
    assert tree.nbytes == SIZE * length


def test_one_long_session_does_not_evict_all_others() -> None:
    tree = PrefixTree(8 * BLOCK * SIZE)
    for name in range(3):
        store(tree, [1000 + name] * BLOCK)
    store(tree, list(range(100 * BLOCK)))
    assert [matched(tree, [1000 + name] * BLOCK) for name in range(3)] == [BLOCK] * 3


def test_the_least_recently_used_end_goes_first() -> None:
    tree = PrefixTree(3 * BLOCK * SIZE, share=1.0)
    for name in range(3):
        store(tree, [name] * BLOCK)
    matched(tree, [0] * BLOCK)
    store(tree, [9] * BLOCK)
    assert [matched(tree, [name] * BLOCK) for name in (0, 1, 2, 9)] == [BLOCK, 0, BLOCK, BLOCK]


def test_identities_share_nothing() -> None:
    tree = PrefixTree(1 << 20)
    store(tree, [1, 2, 3], b"base")
    assert (matched(tree, [1, 2, 3], b"base"), matched(tree, [1, 2, 3], b"adapter")) == (3, 0)
