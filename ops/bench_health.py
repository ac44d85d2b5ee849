"""How fast probes are answered under full load, and how much memory a server holds."""

from .bench_course import Course, Figures, NotMeasured, Scenario
from .bench_plan import Cue
from .bench_process import rss_bytes
from .bench_servers import Server
from .bench_stats import quantile

STREAMS = 7  # and one prompt that joins them
PROBES = ("/health/ready", "/v1/models")
MIB = 1024**2


def measure_health(course: Course, server: Server, round: int) -> Figures:
    """Seven streams decode and an eighth request is prefilled while both paths are asked for twenty times a second."""
    prompts, sizes = course.prompts(f"health {round}"), course.sizes
    shots = [course.shot(server, prompts.text(sizes.short), sizes.health_tokens) for _ in range(STREAMS)]
    shots.append(course.shot(server, prompts.text(sizes.next_prompt), 4, after=Cue(0, 1)))
    report = course.fire(server, shots, PROBES)
    for path in PROBES:
        if report.probe_faults[path]:
            continue  # a server that has no such path
        name = path.strip("/").replace("/", "_")
        yield f"{name}_p50_ms", 1e3 * quantile(report.probes_s[path], 0.5)
        yield f"{name}_p99_ms", 1e3 * quantile(report.probes_s[path], 0.99)
        yield f"{name}_max_ms", 1e3 * max(report.probes_s[path])


def measure_memory(course: Course, server: Server, round: int) -> Figures:
    """Resident memory after all that came before, and its peak."""
    if server.pid is None:
        raise NotMeasured("the memory of a server that somebody else runs cannot be seen")
    resident, peak = rss_bytes(server.pid)
    yield "rss_mib", resident / MIB
    if peak is not None:
        yield "rss_peak_mib", peak / MIB


SCENARIOS = (Scenario("health", measure_health), Scenario("memory", measure_memory))
