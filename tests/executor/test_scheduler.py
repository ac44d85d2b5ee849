"""Who is served next, on the scheduler alone."""

from engines import ask
from soloist.executor.pace import Pace
from soloist.executor.request import Progress
from soloist.executor.scheduler import Scheduler


def scheduled(*prompts: str, rows: int = 8) -> Scheduler:
    scheduler = Scheduler(rows)
    for prompt in prompts:
        scheduler.add(ask(prompt))
    scheduler.admit(0)
    return scheduler


def lengths(scheduler: Scheduler, turns: int) -> list[int]:
    return [len(scheduler.next_prefill().ids) for _ in range(turns)]


def test_a_short_prompt_takes_turns_with_a_long_one_before_it() -> None:
    assert sorted(set(lengths(scheduled("a" * 1000, "b" * 10, "c" * 500), 6))) == [10, 1000]


def test_the_oldest_prompt_gets_every_other_turn() -> None:
    assert lengths(scheduled("a" * 1000, "b" * 10), 6).count(1000) == 3


def test_a_prompt_that_begins_like_an_older_one_waits_for_it() -> None:
    assert set(lengths(scheduled("a" * 1000, "a" * 100), 6)) == {1000}


def test_requests_are_admitted_in_order_while_their_rows_fit() -> None:
    scheduler = Scheduler(4)
    for n in (2, 3, 1):
        scheduler.add(ask("x", n=n))
    news = scheduler.admit(0)
    assert [prefill.rows[0].request.n for prefill in scheduler.prefills] == [2]
    assert [event.queued for event in news if isinstance(event, Progress)] == [1, 2]
    assert scheduler.admit(0) == [], "places are told when they change"


def test_a_chunk_beside_rows_is_about_as_long_as_their_step() -> None:
    pace = Pace(2048)
    pace.prefilled(256, 2.0)
    pace.stepped(0.25)
    assert pace.chunk(alone=False) == 32
    assert pace.chunk(alone=True) == 38


def test_chunks_stay_between_their_bounds() -> None:
    slow, fast = Pace(2048), Pace(2048)
    slow.prefilled(16, 10.0)
    slow.stepped(0.001)
    fast.prefilled(2048, 0.01)
    fast.stepped(1.0)
    assert (slow.chunk(alone=False), fast.chunk(alone=False), Pace(4).chunk(alone=True)) == (8, 2048, 4)
