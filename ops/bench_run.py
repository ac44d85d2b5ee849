"""A whole run: servers up, every scenario for each of them in turn (A B A B), servers down, all samples in hand."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..executor.blas import load_blas
from . import bench_front, bench_health, bench_joins, bench_throughput, bench_waits
from .bench_bare import Ask, Told
from .bench_child import Child, ChildFault
from .bench_course import BARE, Course, NotMeasured, Scenario
from .bench_float32 import float32_copy
from .bench_noise import MACHINE, METRIC, Noise
from .bench_servers import Server, ServerFault, attached, mlx_lm, soloist
from .bench_sizes import Sizes
from .bench_stats import Sample

SCENARIOS: tuple[Scenario, ...] = (
    *bench_throughput.SCENARIOS,
    *bench_waits.SCENARIOS,
    *bench_joins.SCENARIOS,
    *bench_health.SCENARIOS,
    *bench_front.SCENARIOS,
)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be measured. folder: the model's files, if they are here. attach: NAME=URL or URL each.

    vs_mlx_lm: start mlx-lm's server beside ours. only: names of scenarios; empty is all. arguments: for our daemon.
    """

    sizes: Sizes
    seed: int
    folder: Path | None = None
    attach: tuple[str, ...] = ()
    attach_key: str | None = None
    attach_model: str | None = None
    vs_mlx_lm: bool = False
    only: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


@dataclass(slots=True)
class Run:
    """What came of it. not_measured: scenario (and server) to reason. tokens_a_word: of the prompts' words."""

    sizes: Sizes
    seed: int
    subject: str = ""
    others: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    not_measured: dict[str, str] = field(default_factory=dict)
    servers: dict[str, dict[str, Any]] = field(default_factory=dict)
    device: str | None = None
    blas: str | None = None
    tokens_a_word: float = 1.0
    load_average: tuple[float, ...] = ()
    began: float = field(default_factory=time.time)
    seconds: float = 0.0


def carry_out(wish: Wish, say: Say) -> Run:
    """Raises ServerFault when a server does not start or answer. Ends every process that it started."""
    run = Run(wish.sizes, wish.seed, load_average=os.getloadavg())
    began = time.monotonic()
    with ExitStack() as stack:
        servers = [stack.enter_context(server) for server in _servers(wish, stack, say)]
        _check_names(servers)
        course = Course(wish.sizes, wish.seed, stack.enter_context(Child("bench_load")), servers[0].name, wish.folder)
        chosen = [scenario for scenario in SCENARIOS if not wish.only or scenario.name in wish.only]
        if wish.folder is not None and any(scenario.bare for scenario in chosen):
            course.bare = stack.enter_context(Child("bench_bare", [str(wish.folder)]))
        run.subject, run.others = servers[0].name, [server.name for server in servers[1:]]
        _warm_up(course, servers, run, say)
        noise = Noise(lambda: [os.getpid(), course.loader.pid, *_pids(course, servers)])
        for place, scenario in enumerate(chosen):
            if place == 0 or scenario.name != chosen[place - 1].name:
                say(scenario.name)
            _measure(scenario, course, servers, run, noise)
        run.servers = {server.name: server.document() for server in servers}
    _describe(run, course, servers)
    run.seconds = time.monotonic() - began
    return run


def _servers(wish: Wish, stack: ExitStack, say: Say) -> Iterator[Any]:
    """Context managers, the subject first."""
    for spec in wish.attach:
        yield _kept(attached(spec, wish.attach_key, wish.attach_model))
    if wish.attach and not wish.vs_mlx_lm:
        return
    assert wish.folder is not None
    if not wish.attach:
        say("starting soloist")
        yield _started(soloist(wish.folder, max(*wish.sizes.levels, 8), wish.arguments))
    if wish.vs_mlx_lm:
        say("starting mlx-lm")
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="soloist-bench-"))
        yield _started(mlx_lm(float32_copy(wish.folder, Path(scratch) / "float32")))


def _check_names(servers: Sequence[Server]) -> None:
    """Figures go by name."""
    names = [server.name for server in servers]
    for name in names:
        if names.count(name) > 1 or name == BARE:
            raise ServerFault(f"two servers are called {name!r}; attach them as NAME=URL")


@contextmanager
def _kept(server: Server) -> Iterator[Server]:
    yield server


@contextmanager
def _started(server: Server) -> Iterator[Server]:
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _warm_up(course: Course, servers: Sequence[Server], run: Run, say: Say) -> None:
    """Load what is loaded late, compile what is compiled late, and learn how prompts are counted."""
    say("warming up")
    try:
        for place, server in enumerate(servers):
            if place == 0:
                course.measure_gauge(server)
            prompts = course.prompts(f"warm-up {server.name}")
            kinds: tuple[dict[str, Any], ...] = ({}, {"temperature": 0}, {})
            shots = [course.shot(server, prompts.text(8), 4, **fields) for fields in kinds]
            course.fire(server, shots[:1])
            course.fire(server, shots)
        if course.bare is not None:
            for rows in (1, bench_throughput.BARE_ROWS):
                told = course.bare.ask(Ask([[0] * 8] * rows, 4), Told)
            run.device, run.blas = told.device, told.blas
    except (NotMeasured, ChildFault) as fault:
        raise ServerFault(str(fault)) from None
    run.tokens_a_word = course.gauge.per_word


def _pids(course: Course, servers: Sequence[Server]) -> list[int]:
    bare = [course.bare.pid] if course.bare is not None else []
    return bare + [server.pid for server in servers if server.pid is not None]


def _measure(scenario: Scenario, course: Course, servers: Sequence[Server], run: Run, noise: Noise) -> None:
    """Round by round; a server that could not be measured once is not asked again."""
    measured = servers[:1] if scenario.subject_only else servers
    judged = not scenario.own_processes and all(server.pid is not None for server in servers)
    for round in range(course.sizes.rounds):
        before, known = noise.read(time.monotonic()), len(run.samples)
        if scenario.bare is not None and course.bare is not None:
            run.samples += _samples(scenario, BARE, round, scenario.bare(course, round))
        for server in measured:
            key = scenario.name if server is servers[0] else f"{scenario.name} ({server.name})"
            if key in run.not_measured:
                continue
            try:
                run.samples += _samples(scenario, server.name, round, scenario.measure(course, server, round))
            except NotMeasured as reason:
                run.not_measured[key] = str(reason)
        foreign = noise.between(before, noise.read(time.monotonic()))
        if foreign is not None and judged and len(run.samples) > known:
            run.samples.append(Sample(scenario.name, MACHINE, METRIC, round, foreign))


def _samples(scenario: Scenario, server: str, round: int, figures: Iterator[tuple[str, float]]) -> list[Sample]:
    return [Sample(scenario.name, server, metric, round, value) for metric, value in figures]


def _describe(run: Run, course: Course, servers: Sequence[Server]) -> None:
    """Device from the bare loop, else from our daemon's own word; processes by name."""
    health = run.servers[servers[0].name].get("health") or {}
    run.device = run.device or health.get("device")
    run.blas = run.blas or load_blas().name
    run.servers["load generator"] = {"pid": course.loader.pid}
    if course.bare is not None:
        run.servers[BARE] = {"pid": course.bare.pid, "device": run.device, "blas": run.blas}
