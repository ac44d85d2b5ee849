"""The guardian's judgement, patience and memory, without a clock: every word, every pause, every line of a report."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from soloist.ops.guardian_act import fill_in, run_command, tell_webhook
from soloist.ops.guardian_config import GuardianConfig, GuardianError
from soloist.ops.guardian_patience import Patience
from soloist.ops.guardian_probe import Probe, Reading, _weighed
from soloist.ops.guardian_record import PatrolLog, Tally, next_report, write_report
from soloist.ops.guardian_verdict import Verdict, judge

IDLE = {"state": "ready", "last_step_age_s": 4000.0, "queue_depth": 0, "running": 0, "answering": 0}
PREFILLING = {**IDLE, "last_step_age_s": 40.0, "queue_depth": 1, "answering": 1}
STUCK = PREFILLING | {"last_step_age_s": 61.0}
OK = Probe("ok", 0.01, 200, {"data": [{"id": "m"}]})
LATE, GONE, EMPTY = Probe("timeout", 20.0), Probe("refused", 0.01), Probe("hollow", 0.01, 200)
CONFIG = GuardianConfig(watch=("http://127.0.0.1:1",))


def status(code: int, document: Any = None) -> Probe:
    return Probe("status", 0.01, code, document)


def healthy(document: Any) -> Probe:
    return Probe("ok", 0.01, 200, document)


def reading(
    health: Any = None, completion: Probe = OK, deep: Probe = OK, models: Probe = OK, after: Any = None
) -> Reading:
    health = IDLE if health is None else health
    late = None if after is None else healthy(after)
    return Reading(healthy(health), models, deep, completion, late)


CASES = {
    "an idle instance whose last step is old": (reading(), "well"),
    "nothing listens": (Reading(GONE, GONE), "down"),
    "it accepts and never answers": (Reading(LATE, LATE), "frozen"),
    "it is loading": (Reading(status(503, {"state": "loading"}), status(503)), "loading"),
    "it is draining": (Reading(status(503, {"state": "draining"}), status(503)), "draining"),
    "its executor has ended": (Reading(status(503, {"state": "failed"}), status(503)), "dead"),
    "its executor stalls": (Reading(status(503, {"state": "stalled"}), status(503)), "wedged"),
    "it is not ready and does not say why": (Reading(status(500), status(500)), "sick"),
    "probes wait behind a prefill that ticks": (reading(completion=LATE, deep=status(503), after=PREFILLING), "busy"),
    "its queue is full": (reading(completion=status(503), after=PREFILLING), "busy"),
    "it says ready while work is due and no step comes": (reading(STUCK), "wedged"),
    "the same, seen only after the probes": (reading(completion=LATE, after=STUCK), "wedged"),
    "nothing is due and no token comes": (reading(completion=LATE, deep=LATE, after=IDLE), "wedged"),
    "the sampled path fails": (reading(completion=status(503), deep=status(503), after=IDLE), "sick"),
    "a completion is empty": (reading(completion=EMPTY), "hollow"),
    "a completion is empty while others are served": (reading(completion=EMPTY, after=PREFILLING), "hollow"),
    "its list of models is empty": (reading(models=EMPTY), "hollow"),
    "its health is empty": (Reading(EMPTY, OK), "hollow"),
    "the guardian has no key": (reading(completion=status(401), models=status(401)), "locked"),
    "a server without our health paths": (Reading(status(404), OK, status(404), OK), "well"),
    "such a server that gives nothing": (Reading(status(404), OK, status(404), LATE), "wedged"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_visit_is_judged(case: str) -> None:
    found, word = CASES[case]
    assert judge(found, stall_after=60.0).word == word


def trusts_the_listener(found: Reading) -> str:
    return "well" if found.ready.ok else "down"


def calls_every_late_probe_a_wedge(found: Reading) -> str:
    late = any(probe.outcome == "timeout" or probe.status == 503 for probe in found.probes().values())
    return "wedged" if late else judge(found, 60.0).word


def believes_constant_health(found: Reading) -> str:
    return judge(replace(found, ready=healthy(IDLE), after=None), 60.0).word


@pytest.mark.parametrize("mutant", [trusts_the_listener, calls_every_late_probe_a_wedge, believes_constant_health])
def test_a_simpler_judge_is_caught(mutant: Any) -> None:
    assert [case for case, (found, word) in CASES.items() if mutant(found) != word]


@pytest.mark.parametrize(
    ("document", "outcome"),
    [
        ({"choices": [{"text": "a"}], "usage": {"completion_tokens": 1}}, "ok"),
        ({"choices": [{"text": ""}], "usage": {"completion_tokens": 1}}, "ok"),
        ({"choices": [{"text": "a"}]}, "ok"),
        ({"choices": [{"text": ""}], "usage": {"completion_tokens": 0}}, "hollow"),
        ({"choices": []}, "hollow"),
        ({"object": "text_completion"}, "hollow"),
        ({"usage": 5, "choices": 7}, "hollow"),
    ],
)
def test_a_completion_counts_only_with_a_token_inside(document: Any, outcome: str) -> None:
    assert _weighed(healthy(document)).outcome == outcome


MISS, WELL, BUSY, LOADING = (Verdict(w, "") for w in ("wedged", "well", "busy", "loading"))  # type: ignore[arg-type]


def test_only_misses_in_a_row_call_for_an_action() -> None:
    patience = Patience(CONFIG)
    for verdict in (MISS, MISS, WELL, MISS, MISS, BUSY, MISS, MISS, LOADING):
        patience.weigh(verdict, 0.0)
        assert patience.decide(0.0) == "nothing"
    for _ in range(3):
        patience.weigh(MISS, 0.0)
    assert patience.decide(0.0) == "act"
    assert patience.red


def test_pauses_double_up_to_their_cap_and_actions_end() -> None:
    config = replace(CONFIG, misses=1, backoff=10.0, backoff_cap=30.0, max_actions=4, actions_within=1000.0)
    patience, now, pauses = Patience(config), 0.0, []
    for _ in range(4):
        begun = now
        patience.weigh(MISS, now)
        while patience.decide(now) == "wait":
            now += 1.0
        pauses.append(now - begun)
        assert patience.decide(now) == "act"
        patience.acted(now)
    assert pauses == [0, 10, 20, 30]
    patience.weigh(MISS, 500.0)
    assert patience.decide(500.0) == "give_up"
    assert patience.decide(1001.0) == "act"


def test_calm_starts_the_pauses_from_the_beginning() -> None:
    patience = Patience(replace(CONFIG, misses=1, backoff=10.0, calm=100.0))
    for now in (0.0, 50.0):
        patience.weigh(MISS, now)
        patience.acted(now)
    for now in (60.0, 110.0, 161.0):
        patience.weigh(WELL, now)
    patience.weigh(MISS, 200.0)
    patience.acted(200.0)
    patience.weigh(MISS, 209.0)
    assert (patience.decide(209.0), patience.decide(210.0)) == ("wait", "act")


def test_loading_is_no_miss_until_it_has_taken_too_long() -> None:
    patience = Patience(replace(CONFIG, loading_limit=100.0))
    assert patience.weigh(LOADING, 0.0).word == "loading"
    assert patience.weigh(LOADING, 100.0).word == "loading"
    assert patience.weigh(LOADING, 101.0).word == "stuck"


async def test_a_command_gets_its_words_whole_and_is_ended_at_its_deadline() -> None:
    words = fill_in(["printf", "%s|", "{name}", "x {reason} y"], {"name": "a", "reason": "no; rm $HOME `x`"})
    done = await run_command(words, 5.0)
    assert (done.outcome, done.output) == ("ok", "a|x no; rm $HOME `x` y|")
    assert (await run_command(["false"], 5.0)).outcome == "failed"
    assert (await run_command(["no-such-program"], 5.0)).outcome == "missing"
    assert (await run_command(["sh", "-c", "sleep 60 & wait"], 0.2)).outcome == "timeout"
    assert (await run_command(["sh", "-c", "sleep 3 & echo started"], 2.0)).output == "started"


async def test_a_webhook_is_sent_json_and_may_fail_or_hang() -> None:
    seen: list[Any] = []

    async def hook(request: web.Request) -> web.Response:
        seen.append(await request.json())
        return web.Response(status=500 if len(seen) > 1 else 204)

    app = web.Application()
    app.router.add_post("/", hook)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    async with aiohttp.ClientSession() as session:
        assert (await tell_webhook(session, url, {"event": "acting"})).outcome == "ok"
        assert (await tell_webhook(session, url, {})).outcome == "failed"
        await runner.cleanup()
        assert (await tell_webhook(session, url, {})).outcome == "missing"
    assert seen[0] == {"event": "acting"}


def test_a_report_is_due_twice_a_day() -> None:
    clocks = ("08:00", "20:00")
    assert next_report(datetime(2026, 3, 1, 7, 59), clocks) == datetime(2026, 3, 1, 8)
    assert next_report(datetime(2026, 3, 1, 8, 0), clocks) == datetime(2026, 3, 1, 20)
    assert next_report(datetime(2026, 12, 31, 20, 0, 1), clocks) == datetime(2027, 1, 1, 8)


def test_a_report_says_what_was_seen_and_done(tmp_path: Path) -> None:
    tally = Tally(red_s=12.4)
    for verdict in (WELL, WELL, WELL, Verdict("hollow", "nothing inside")):
        tally.visit(verdict, reading())
    tally.actions["command ok"] += 1
    text = write_report({"a": tally, "b": Tally()}, datetime(2026, 3, 1, 8), datetime(2026, 3, 1, 20), tmp_path / "r")
    assert text == (
        "Guardian's report, 2026-03-01 08:00 to 2026-03-01 20:00\n"
        "a: well in 75.0 % of 4 visits (well 3, hollow 1); red for 12 s; a token takes 0.01 s, 95 % 0.01 s; "
        "actions: command ok 1; last fault: hollow: nothing inside\n"
        "b: well in 0.0 % of 0 visits (none); red for 0 s\n"
    )
    assert [file.read_text() for file in (tmp_path / "r").iterdir()] == [text]


def test_the_patrol_log_is_json_lines(tmp_path: Path) -> None:
    import json

    log = PatrolLog(tmp_path / "logs" / "patrol.jsonl")
    log.visit("a", "http://x", Verdict("busy", 'says "wait"\n'), 0, reading(PREFILLING))
    log.close()
    (line,) = (tmp_path / "logs" / "patrol.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert (found["name"], found["verdict"], found["queue_depth"], found["completion_ms"]) == ("a", "busy", 1, 10.0)


@pytest.mark.parametrize(
    "settings",
    [
        {"watch": ()},
        {"watch": ("localhost:3301",)},
        {"watch": ("a b=http://x",)},
        {"watch": ("a=http://x", "a=http://y")},
        {"report_at": ("8am",)},
        {"listen": "3304"},
        {"command": "sh -c 'oops"},
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(GuardianError):
        GuardianConfig(**{"watch": ("http://127.0.0.1:1",), **settings})


def test_instances_are_named_by_their_address_unless_told_otherwise() -> None:
    config = GuardianConfig(watch=("http://127.0.0.1:3301/v1", "b=https://host"))
    assert [(w.name, w.url) for w in config.watched()] == [
        ("127.0.0.1_3301", "http://127.0.0.1:3301"),
        ("b", "https://host"),
    ]
