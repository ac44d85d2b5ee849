"""Time to the first token: cold, on a warm prefix, after a restart, together with others, after a client that left."""

import shutil
import tempfile
import time
from pathlib import Path

from .bench_course import Course, Figures, NotMeasured, Scenario
from .bench_plan import Cue
from .bench_servers import Server, ServerFault, soloist, takes

TOGETHER = 4
ANSWER = 2  # tokens: enough to know that the first one was no accident
SETTLE_WITHIN_S = 20.0


def measure_ttft(course: Course, server: Server, round: int) -> Figures:
    prompts, sizes = course.prompts(f"ttft {round}"), course.sizes
    prefix = prompts.text(sizes.prefix)
    for name in ("cold", "warm"):
        prompt = prompts.continued(prefix, sizes.suffix)
        (outcome,) = course.fire(server, [course.shot(server, prompt, ANSWER)]).outcomes
        yield f"ttft_{name}_ms", 1e3 * outcome.ttft_s
        if outcome.cached_tokens is not None:
            yield f"ttft_{name}_cached_tokens", outcome.cached_tokens


def measure_restart(course: Course, server: Server, round: int) -> Figures:
    """A daemon of its own with a disk tier: filled, stopped, started again."""
    if server.command is None or course.folder is None:
        raise NotMeasured("only a server that the bench starts can be restarted")
    if not takes("--cache-dir"):
        raise NotMeasured("this version of the daemon has no --cache-dir")
    prompts, sizes = course.prompts(f"restart {round}"), course.sizes
    prefix = prompts.text(sizes.prefix)
    cache = Path(tempfile.mkdtemp(prefix="soloist-bench-"))
    try:
        for name in ("cold", "warm"):
            other = soloist(course.folder, 1, ["--cache-dir", str(cache)])
            other.start()
            try:
                course.fire(other, [course.shot(other, prompts.text(sizes.short), ANSWER)])
                prompt = prompts.continued(prefix, sizes.suffix)
                (outcome,) = course.fire(other, [course.shot(other, prompt, ANSWER)]).outcomes
                wait_until_quiet(cache, sizes.idle_s)
            finally:
                other.stop()
            yield ("restart_cold_ms" if name == "cold" else "ttft_restart_ms"), 1e3 * outcome.ttft_s
    except ServerFault as fault:
        raise NotMeasured(str(fault)) from None
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def wait_until_quiet(folder: Path, idle_s: float) -> None:
    """Until nothing has been written for that long; the disk tier writes off the hot path."""
    until = time.monotonic() + SETTLE_WITHIN_S
    before = None
    while time.monotonic() < until:
        now = sorted((path.name, path.stat().st_size) for path in folder.rglob("*") if path.is_file())
        if now == before:
            return
        before = now
        time.sleep(idle_s)


def measure_shared(course: Course, server: Server, round: int) -> Figures:
    """One cold prefill, then requests that arrive together with a common prefix that is just as cold."""
    prompts, sizes = course.prompts(f"shared {round}"), course.sizes
    alone = prompts.continued(prompts.text(sizes.prefix), sizes.suffix)
    (outcome,) = course.fire(server, [course.shot(server, alone, ANSWER)]).outcomes
    yield "one_cold_ttft_ms", 1e3 * outcome.ttft_s
    prefix = prompts.text(sizes.prefix)
    shots = [course.shot(server, prompts.continued(prefix, sizes.suffix), ANSWER) for _ in range(TOGETHER)]
    last = max(outcome.ttft_s for outcome in course.fire(server, shots).outcomes)
    yield "shared_prefix4_last_ttft_ms", 1e3 * last


def measure_drop(course: Course, server: Server, round: int) -> Figures:
    """A client leaves in the middle of its prefill; how long does the next one wait, against an idle server?"""
    prompts, sizes = course.prompts(f"drop {round}"), course.sizes
    (idle,) = course.fire(server, [course.shot(server, prompts.text(sizes.next_prompt), ANSWER)]).outcomes
    yield "next_idle_ttft_ms", 1e3 * idle.ttft_s
    leaving = course.shot(server, prompts.text(sizes.abandoned_prompt), ANSWER, leave=Cue(0, 0, sizes.leave_after_s))
    following = course.shot(server, prompts.text(sizes.next_prompt), ANSWER, after=Cue(0))
    left, after = course.fire(server, [leaving, following]).outcomes
    if left.arrivals_s:
        raise NotMeasured(f"{server.name} had read the whole prompt before the client left")
    yield "next_after_drop_ttft_ms", 1e3 * after.ttft_s


SCENARIOS = (
    Scenario("ttft", measure_ttft),
    Scenario("restart", measure_restart, subject_only=True, own_processes=True),
    Scenario("shared", measure_shared),
    Scenario("drop", measure_drop),
)
