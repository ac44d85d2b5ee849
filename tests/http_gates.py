"""Gates on a served model that the suite turns on the real code and on its mutants alike."""

from http_server import Server


def default_bodies_differ(dist: Server) -> None:
    """Temperature and seed omitted, four times."""
    assert len({dist.chat(max_tokens=24).text for _ in range(4)}) == 4


def answers_repeat(dist: Server, **fields: int) -> None:
    assert len({dist.chat(max_tokens=24, **fields).text for _ in range(3)}) == 1
