"""What other servers on MLX die of, tried on this very machine: threads, streams, dice, uniforms. Imports MLX, late.

Each check does it the naive way, to say how this MLX behaves, and Soloist's way, which decides the verdict. Whatever
uses MLX runs in a thread of its own, which clears its streams as it ends.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .doctor_finding import Finding

T = TypeVar("T")
REINSTALL = "pip install --force-reinstall mlx mlx-lm"
EXTREMES = (0, 1, 0xFF, 0x100, 0x7FFFFFFF, 0x80000000, 0xFFFFFEFF, 0xFFFFFF00, 0xFFFFFF80, 0xFFFFFFFF)
DRAWS = 1 << 16


class Stuck(Exception):
    """A thread did not come back."""


def in_thread(work: Callable[[], T], within_s: float = 60.0) -> T:
    """Run in a fresh thread; its result, or its exception raised here. Raises Stuck."""
    outcome: dict[str, Any] = {}

    def body() -> None:
        import mlx.core as mx

        try:
            outcome["result"] = work()
        except BaseException as error:
            outcome["error"] = error
        finally:
            mx.clear_streams()

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(within_s)
    if thread.is_alive():
        raise Stuck(f"a thread that uses MLX did not come back within {within_s:g} s")
    if "error" in outcome:
        raise outcome["error"]
    result: T = outcome["result"]
    return result


def _product() -> Any:
    """A lazy array of a thread's own durable stream."""
    import mlx.core as mx

    mx.set_default_stream(mx.new_stream(mx.default_device()))
    return mx.ones((4,)) * 3


def _concrete_product() -> Any:
    from ..executor.concrete import make_concrete

    array = _product()
    make_concrete([array])
    return array


def _refused(work: Callable[[], Any]) -> bool:
    try:
        in_thread(work)
    except RuntimeError:
        return True
    return False


def thread() -> Finding:
    lazy, concrete = in_thread(_product), in_thread(_concrete_product)
    naive = "refuses" if _refused(lambda: (lazy + 1).tolist()) else "accepts"
    try:
        works = in_thread(lambda: (concrete + 1).tolist()) == [4.0] * 4
    except RuntimeError:
        works = False
    detail = f"this MLX {naive} lazy arrays of another thread; evaluated ones"
    if works:
        return Finding("thread", "ok", f"{detail} cross, and Soloist keeps no other")
    return Finding("thread", "fail", f"{detail} do not cross either", REINSTALL)


def stream() -> Finding:
    """Something saved back in a scoped stream is the request after next's fault; a durable one leaves nothing lazy."""
    import mlx.core as mx

    def scoped() -> Any:
        with mx.stream(mx.new_stream(mx.default_device())):
            return mx.ones((4,)) * 2

    entry = in_thread(scoped)
    naive = "poisons" if _refused(entry.tolist) else "keeps"
    kept = in_thread(_concrete_product)
    detail = f"a scoped stream {naive} what is saved in it"
    if not _refused(kept.tolist):
        return Finding("stream", "ok", f"{detail}; the durable one does not")
    return Finding("stream", "fail", f"{detail}; a durable one poisons it too", REINSTALL)


def dice() -> Finding:
    """Draws of two threads that seed nothing, of two that start as the executor's does, and of one explicit key."""
    import mlx.core as mx

    from ..executor.inbox import Inbox
    from ..executor.pulse import Pulse
    from ..executor.settings import EngineSettings
    from ..executor.worker import Worker

    def unseeded() -> Any:
        return mx.random.uniform(shape=(8,)).tolist()

    def ours() -> Any:
        Worker(EngineSettings("."), Inbox(), Pulse(1), lambda events: None).open_thread()  # type: ignore[arg-type]
        return unseeded()

    def keyed() -> Any:
        mx.set_default_stream(mx.new_stream(mx.default_device()))
        return mx.random.categorical(mx.zeros((8, 64)), key=mx.random.key(7)).tolist()

    naive = "replay one another's draws" if in_thread(unseeded) == in_thread(unseeded) else "differ"
    first, second = in_thread(keyed), in_thread(keyed)
    detail = f"unseeded threads {naive}; "
    if in_thread(ours) == in_thread(ours):
        return Finding("dice", "fail", detail + "executor threads draw alike too", "check /dev/urandom; " + REINSTALL)
    if first != second or not all(0 <= token < 64 for token in first):
        return Finding("dice", "fail", detail + f"one key drew {first} and {second}", REINSTALL)
    return Finding("dice", "ok", detail + "executor threads differ, and one key draws the same on each")


def uniforms() -> Finding:
    """The end points: a uniform of 0 or 1 makes infinite noise, and infinite noise is the drawn token."""
    import mlx.core as mx

    from ..sampler.noise import gumbel, open_interval

    def ends() -> tuple[Any, Any, float]:
        made = open_interval(mx.array(EXTREMES, mx.uint32))
        naive = mx.array([EXTREMES[-1]], mx.uint32).astype(mx.float32) * (1.0 / 2**32)
        return np.array(made), np.array(gumbel(made)), float(np.array(naive)[0])

    made, noise, naive = in_thread(ends)
    inside = bool(np.all((made > 0) & (made < 1)) and np.all(np.isfinite(noise)))
    detail = f"{made.min():.3g} to 1 - {1 - float(made.max()):.3g}, noise {noise.min():.3g} to {noise.max():.3g} bits"
    if inside:
        return Finding("uniforms", "ok", f"{detail}; plain scaling of the largest word gives {naive:g}")
    return Finding("uniforms", "fail", f"an end point is reached: {detail}", REINSTALL)


def generator() -> Finding:
    """The device's random words against Threefry-2x32 computed here, and 65,536 uniforms against flatness."""
    import mlx.core as mx

    from ..sampler.noise import open_interval, random_words

    keys = ((0, 0), (7, 11), (0xFFFFFFFF, 0x12345678))

    def words(width: int) -> Any:
        return np.array(random_words(mx.array(keys, mx.uint32), width))

    def flat() -> Any:
        return np.array(open_interval(random_words(mx.array(keys[1:2], mx.uint32), DRAWS)))[0]

    drawn, again, uniform = in_thread(lambda: words(64)), in_thread(lambda: words(64)), in_thread(flat)
    counts = np.histogram(uniform, bins=16, range=(0, 1))[0]
    chi = sum((count - DRAWS / 16) ** 2 for count in counts.tolist()) / (DRAWS / 16)
    apart = len({tuple(row) for row in drawn.tolist()}) == len(keys)
    repeatable = bool(np.array_equal(drawn, again))
    if chi > 80 or not apart or not repeatable:
        what = f"chi-squared {chi:.0f} of 16 bins, keys told apart: {apart}, repeatable: {repeatable}"
        return Finding("generator", "fail", f"random words are not: {what}", REINSTALL)
    if drawn.tolist() != [_threefry_words(key, 64) for key in keys]:
        remedy = "a seed gives other tokens than on other devices; nothing else is wrong"
        return Finding("generator", "slow", "random, but not Threefry-2x32 word by word", remedy)
    return Finding("generator", "ok", f"Threefry-2x32 word by word; flat (chi-squared {chi:.0f} of 16 bins)")


def _threefry_words(key: tuple[int, int], width: int) -> list[int]:
    """An even number of words in MLX's order: counter i makes word i and word i + width / 2."""
    pairs = [_threefry(key, (count, count + width // 2)) for count in range(width // 2)]
    return [first for first, _ in pairs] + [second for _, second in pairs]


def _threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror & Shaw, SC 2011)."""
    mask, rotations = 0xFFFFFFFF, ((13, 15, 26, 6), (17, 29, 16, 24))
    schedule = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    first, second = (counter[0] + key[0]) & mask, (counter[1] + key[1]) & mask
    for group in range(5):
        for rotation in rotations[group % 2]:
            first = (first + second) & mask
            second = ((second << rotation | second >> (32 - rotation)) & mask) ^ first
        first = (first + schedule[(group + 1) % 3]) & mask
        second = (second + schedule[(group + 2) % 3] + group + 1) & mask
    return first, second
