"""What the front end costs for each token: a stub engine behind the real HTTP stack, the client in another process."""

from .bench_child import Child, ChildFault
from .bench_course import Course, Figures, NotMeasured, Scenario
from .bench_flood import Flood, Flooded
from .bench_servers import Server
from .bench_stub import Meter

# Scanned for in every piece of text and never found.
STOPS = ["\n\nUser:", "<|never|>"]


def measure_front(course: Course, server: Server, round: int) -> Figures:
    """Tokens a second of wall time and of the server's processor time; the latter is steadier on a busy machine."""
    if course.folder is None:
        raise NotMeasured("needs the model's tokenizer: name its folder with --model")
    sizes = course.sizes
    body = {
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "stream": True,
        "max_tokens": sizes.flood_tokens,
        "stop": STOPS,
    }
    try:
        with Child("bench_stub", [str(course.folder)]) as stub, Child("bench_flood") as client:
            port = stub.ask({}, Meter).port
            client.ask(Flood(port, sizes.flood_streams, body | {"max_tokens": 20}), Flooded)  # warm
            before = stub.ask({}, Meter).processor_s
            told = client.ask(Flood(port, sizes.flood_streams, body), Flooded)
            used = stub.ask({}, Meter).processor_s - before
    except ChildFault as fault:
        raise NotMeasured(str(fault)) from None
    tokens = sizes.flood_streams * sizes.flood_tokens
    if told.errors or told.events < tokens:
        raise NotMeasured(f"{told.errors} streams broke, {told.events} events came for {tokens} tokens")
    yield "front_tok_s", tokens / told.seconds
    yield "front_processor_tok_s", tokens / used
    yield "front_processor_us_a_token", 1e6 * used / tokens


SCENARIOS = (Scenario("frontend", measure_front, subject_only=True, own_processes=True),)
