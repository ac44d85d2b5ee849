"""The load generator as a process, the bare loop and the soak, against real daemons with tiny models."""

import random
from pathlib import Path

import pytest
from http_server import serving
from soloist.ops.bench_bare import Ask, Told
from soloist.ops.bench_child import Child, ChildFault
from soloist.ops.bench_float32 import float32_copy
from soloist.ops.bench_plan import Cue, Load, Report, Shot
from soloist.ops.bench_soak import soak
from soloist.ops.bench_soak_load import mixed
from soloist.ops.bench_tiny import tiny_model
from soloist.tokenizer.tokenizer import Tokenizer
from tiny_models import scripted

WORDS = ["w0 ", "w1 ", "w2 ", "w3 "]


def shot(tokens: int, after: Cue | None = None, leave: Cue | None = None) -> Shot:
    return Shot({"prompt": "x", "max_tokens": tokens, "temperature": 0, "stream": True}, after=after, leave=leave)


def test_shots_keep_to_their_cues(tmp_path: Path) -> None:
    load = [
        shot(5),
        shot(5, after=Cue(0)),
        shot(4000, leave=Cue(3)),
        shot(5, after=Cue(2, 3)),
        shot(5, after=Cue(0, 99)),  # never so many pieces: its end is what is left to wait for
    ]
    with serving(scripted(tmp_path, WORDS, after_last="w0 ")) as server, Child("bench_load") as loader:
        asked = Load(f"http://127.0.0.1:{server.port}", tuple(load), probes=("/v1/models", "/nowhere"))
        report = loader.ask(asked, Report)
    first, second, broken, joined, last = report.outcomes
    assert first.text == "w0 w1 w2 w3 w0 " and 1 <= len(first.arrivals_s) <= 5
    assert second.sent_s >= first.ended_s and last.sent_s >= first.ended_s
    assert broken.left and 3 <= len(broken.arrivals_s) < 4000 and broken.error is None
    assert joined.sent_s >= broken.arrivals_s[2] and broken.ended_s >= joined.ended_s
    assert report.probes_s["/v1/models"] and report.probe_faults == {
        "/v1/models": 0,
        "/nowhere": len(report.probes_s["/nowhere"]),
    }


def test_a_refusal_is_told_as_the_server_said_it(tmp_path: Path) -> None:
    with serving(scripted(tmp_path, WORDS)) as server, Child("bench_load") as loader:
        asked = Load(f"http://127.0.0.1:{server.port}", (Shot({"prompt": "x", "max_tokens": 0}),))
        (outcome,) = loader.ask(asked, Report).outcomes
    assert outcome.status == 400 and outcome.error is not None and "max_tokens" in outcome.error


def test_a_server_that_is_not_there_is_an_error_and_no_crash() -> None:
    with Child("bench_load") as loader:
        (outcome,) = loader.ask(Load("http://127.0.0.1:1", (shot(1),)), Report).outcomes
    assert outcome.status == 0 and outcome.error is not None


def test_a_helper_that_fails_says_why_and_lives(tmp_path: Path) -> None:
    folder = scripted(tmp_path, WORDS, after_last="w0 ")
    ids = Tokenizer.load(folder).encode("hello")
    with Child("bench_bare", [str(folder)]) as bare:
        with pytest.raises(ChildFault, match="bench_bare"):
            bare.ask(Ask([[0], [0, 0]], 4), Told)
        told = bare.ask(Ask([ids, ids], 6), Told)
    text = Tokenizer.load(folder).output().push(told.ids[0]).content
    assert text == "w0 w1 w2 w3 w0 w1 " and told.ids[0] == told.ids[1]


def test_a_helper_that_ends_is_told_from_one_that_answers(tmp_path: Path) -> None:
    with Child("bench_bare", [str(tmp_path / "nothing")]) as bare, pytest.raises(ChildFault, match="without an answer"):
        bare.ask(Ask([[0]], 2), Told)


def test_the_float32_copy_says_the_same(tmp_path: Path) -> None:
    source = scripted(tmp_path / "source", WORDS, after_last="w0 ")
    copy = float32_copy(source, tmp_path / "copy")
    with serving(copy) as server:
        assert server.complete("x", max_tokens=3, temperature=0).text == "w0 w1 w2 "


def test_the_soak_is_mixed_and_breaks_off_many() -> None:
    shots = mixed(random.Random(1), 1000)
    broken = sum(shot.leave is not None for shot in shots)
    assert 350 < broken < 450
    assert {shot.path for shot in shots} == {"/v1/chat/completions", "/v1/completions"}
    assert {bool(shot.body["stream"]) for shot in shots} == {True, False}
    assert any(shot.body.get("n") == 2 for shot in shots)


def test_a_short_soak_ends_with_all_streams_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = soak(tiny_model(tmp_path / "tiny"), 40, [], tmp_path / "soak.json", idle_s=0.2)
    assert code in (0, 1)  # forty requests say nothing about a plateau
    shown = capsys.readouterr().out
    assert "40 requests" in shown and "fault" not in shown and "0 requests still running" in shown
