"""Many mixed requests, many of them broken off: does memory settle, does every stream end, is an idle server idle?"""

import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from .bench_child import Child
from .bench_plan import Load, Report
from .bench_process import cpu_seconds, rss_bytes
from .bench_servers import Server, ServerFault, soloist, takes, versions
from .bench_soak_load import mixed
from .bench_tiny import tiny_model

MIB = 1024**2
BATCH = 100  # requests between two readings
SMALL_CACHE = "8MiB"
GROWTH_MIB = 1.0  # a hundred requests, over the last half: the most that counts as settled
IDLE_CPU = 0.02  # of one core
IDLE_S = 3.0
# One exposition line of a gauge (Prometheus text format) whose name says that it is memory in active use.
ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class Reading:
    """After so many requests. active_mib: what the server itself says of MLX's memory, or None."""

    requests: int
    rss_mib: float
    active_mib: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """growth: MiB a hundred requests over the last half, by least squares. idle_cpu: part of one core."""

    readings: tuple[Reading, ...]
    requests: int
    broken_off: int
    faults: tuple[str, ...]
    rss_growth: float
    active_growth: float | None
    idle_cpu: float | None
    left_running: int | None
    seconds: float

    @property
    def settled(self) -> bool:
        growths = [growth for growth in (self.rss_growth, self.active_growth) if growth is not None]
        idle = self.idle_cpu is None or self.idle_cpu <= IDLE_CPU
        return not self.faults and all(growth < GROWTH_MIB for growth in growths) and idle and not self.left_running


def soak(
    folder: Path | None, requests: int, arguments: Sequence[str], file: Path | None, idle_s: float = IDLE_S
) -> int:
    """Against a tiny random model of our own unless a folder is given. 0: it settled; 1: it did not.

    idle_s: for how long the processor time of the idle server is watched.
    """
    with tempfile.TemporaryDirectory(prefix="soloist-bench-") as scratch:
        model = folder or tiny_model(Path(scratch) / "tiny")
        server = soloist(model, 8, [*_small_cache(), *arguments])
        try:
            server.start()
            with Child("bench_load") as loader:
                verdict = _soak(server, loader, requests, idle_s)
        finally:
            server.stop()
    _print(verdict)
    if file is not None:
        file.write_bytes(orjson.dumps(asdict(verdict) | {"settled": verdict.settled, "versions": versions()}) + b"\n")
    return 0 if verdict.settled else 1


def _small_cache() -> list[str]:
    """A prefix cache of a few prompts, so that it is evicted all the time and its growth hides no leak."""
    return ["--prefix-cache-bytes", SMALL_CACHE] if takes("--prefix-cache-bytes") else []


def _soak(server: Server, loader: Child, requests: int, idle_s: float) -> Verdict:
    began, dice, faults, broken_off = time.monotonic(), random.Random(1), [], 0
    readings = [_read(server, 0)]
    for done in range(0, requests, BATCH):
        shots = mixed(dice, min(BATCH, requests - done))
        report = loader.ask(Load(server.base_url, shots), Report)
        broken_off += sum(outcome.left for outcome in report.outcomes)
        faults += [outcome.error for outcome in report.outcomes if outcome.error is not None]
        readings.append(_read(server, done + len(shots)))
        now = readings[-1]
        print(f"{now.requests:6d} requests, resident {now.rss_mib:.1f} MiB", file=sys.stderr, flush=True)
    idle = _idle_cpu(server, idle_s)
    return Verdict(
        readings=tuple(readings),
        requests=requests,
        broken_off=broken_off,
        faults=tuple(faults[:20]),
        rss_growth=growth([(reading.requests, reading.rss_mib) for reading in readings]),
        active_growth=_active_growth(readings),
        idle_cpu=idle,
        left_running=(server.document()["health"] or {}).get("running"),
        seconds=time.monotonic() - began,
    )


def _read(server: Server, requests: int) -> Reading:
    if server.pid is None:
        raise ServerFault(f"{server.name} has ended: {server.last_words()}")
    return Reading(requests, rss_bytes(server.pid)[0] / MIB, active_mib(_metrics(server)))


def _metrics(server: Server) -> str:
    try:
        return server.text("/metrics")
    except ServerFault:
        return ""


def active_mib(exposition: str) -> float | None:
    """The gauge of MLX's active memory among a server's metrics (Prometheus text format), if it has one."""
    for line in exposition.splitlines():
        name, _, value = line.partition(" ")
        if ACTIVE in name and "bytes" in name and not line.startswith("#"):
            return float(value) / MIB
    return None


def growth(points: Sequence[tuple[int, float]]) -> float:
    """Slope a hundred requests over the last half of the points (least squares)."""
    late = points[len(points) // 2 :]
    if len(late) < 2:
        return 0.0
    mean_x = sum(x for x, _ in late) / len(late)
    mean_y = sum(y for _, y in late) / len(late)
    spread = sum((x - mean_x) ** 2 for x, _ in late)
    return 100 * sum((x - mean_x) * (y - mean_y) for x, y in late) / spread


def _active_growth(readings: Sequence[Reading]) -> float | None:
    points = [(reading.requests, reading.active_mib) for reading in readings if reading.active_mib is not None]
    return growth(points) if points else None


def _idle_cpu(server: Server, seconds: float) -> float | None:
    assert server.pid is not None
    time.sleep(1.0)  # what was broken off last may still be on its way out
    before = cpu_seconds(server.pid)
    time.sleep(seconds)
    after = cpu_seconds(server.pid)
    return None if before is None or after is None else (after - before) / seconds


def _print(verdict: Verdict) -> None:
    first, last = verdict.readings[0], verdict.readings[-1]
    print(f"{verdict.requests} requests, {verdict.broken_off} broken off, {verdict.seconds:.0f} s")
    print(f"resident memory {first.rss_mib:.1f} to {last.rss_mib:.1f} MiB, {verdict.rss_growth:+.3f} MiB a hundred")
    if verdict.active_growth is not None:
        print(f"active memory {verdict.active_growth:+.3f} MiB a hundred requests")
    if verdict.idle_cpu is not None:
        print(f"idle: {100 * verdict.idle_cpu:.1f} % of a core, {verdict.left_running} requests still running")
    for fault in verdict.faults:
        print(f"fault: {fault}")
    print("settled" if verdict.settled else "NOT settled")
