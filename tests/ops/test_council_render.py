"""The rendered configuration: HAProxy accepts it, every route in it is served, nothing in it cuts a long stream."""

import re
from pathlib import Path

import pytest
from soloist.ops.council_config import Council, CouncilError, read_council
from soloist.ops.council_render import buffer_size, render
from soloist.ops.council_routes import plan_routes
from soloist.ops.council_run import check, find_haproxy, write

GOOD = """
address = "127.0.0.1:3300"
default = "demo"
metrics = "127.0.0.1:3308"
guardian = "127.0.0.1:3309"
session_headers = ["x-session-id", "x-conversation"]
largest_body = "8MiB"
[instances.alpha]
address = "127.0.0.1:3301"
models = ["demo", "org/big", "council-tiered/careful"]
[instances.beta]
address = "10.0.0.7:3301"
models = ["demo", "small", "council-tiered/careful"]
[tiers]
careful = ["org/big", "small"]
"""


def council(tmp_path: Path, text: str = GOOD) -> Council:
    file = tmp_path / "council.toml"
    file.write_text(text)
    return read_council(file)


def test_haproxy_accepts_what_is_rendered_even_in_a_folder_with_odd_names(tmp_path: Path) -> None:
    (tmp_path / "council.toml").write_text(GOOD)
    check(find_haproxy(), write(tmp_path / "council.toml", tmp_path / "a b & <c> $d"))


def test_what_haproxy_refuses_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.cfg").write_text("frontend f\n    bind nowhere\n")
    with pytest.raises(CouncilError, match=r"haproxy refuses [^\n]*$"):
        check(find_haproxy(), tmp_path / "broken.cfg")


def test_names_that_lead_to_the_same_instances_share_a_route_and_tiers_keep_their_order(tmp_path: Path) -> None:
    text = GOOD.replace('"org/big", "council', '"org/big", "alias", "council')
    routes = {
        route.names: [[i.name for i in tier] for tier in route.tiers] for route in plan_routes(council(tmp_path, text))
    }
    assert routes == {
        ("demo",): [["alpha", "beta"]],
        ("org/big", "alias"): [["alpha"]],
        ("small",): [["beta"]],
        ("council-tiered/careful",): [["alpha"], ["beta"]],
    }


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"small", "council-tiered/careful"', '"small"', "--served-model-name council-tiered/careful"),
        ('careful = ["org/big", "small"]', 'careful = ["org/big", "tiny"]', "no instance serves its tier 'tiny'"),
        ('careful = ["org/big", "small"]', "", "does not define it"),
        ('default = "demo"', 'default = "other"', "default 'other' is served by no instance"),
        ('"127.0.0.1:3300"', '"0.0.0.0:3300"', "keys_at_instances"),
        ('address = "127.0.0.1:3301"', 'address = "127.0.0.1"', "no HOST:PORT"),
        ("[instances.alpha]", '[instances."al pha"]', "a name is made of"),
        ('"org/big", "council', '"org/big\' }", "council', "cannot be routed"),
        ("largest_body", "largest_bodies", "unknown setting 'largest_bodies'"),
        ('"8MiB"', '"lots"', "largest_body is 'lots'"),
        ("[tiers]", "[tiers", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    with pytest.raises(CouncilError, match=re.escape(complaint)):
        render(council(tmp_path, GOOD.replace(old, new)), tmp_path)


def milliseconds(text: str, name: str) -> int:
    match = re.search(rf"^ +timeout {name} (\d+)ms$", text, re.MULTILINE)
    assert match
    return int(match[1])


def test_no_timeout_cuts_a_stream_of_sixteen_minutes_even_if_it_were_silent(tmp_path: Path) -> None:
    text = render(council(tmp_path), tmp_path)
    assert milliseconds(text, "client") >= 16 * 60_000
    assert milliseconds(text, "server") >= 16 * 60_000
    assert "timeout tunnel" not in text
    assert not re.search(r"set-timeout|http-response wait-for-body|option http-buffer-response|compression", text)


def test_the_buffer_holds_the_largest_body_and_its_headers(tmp_path: Path) -> None:
    text = render(council(tmp_path), tmp_path)
    assert f"tune.bufsize {buffer_size(council(tmp_path))}\n" in text
    assert buffer_size(council(tmp_path)) >= 8 * 1024**2 + 65536


def test_client_faults_are_never_retried(tmp_path: Path) -> None:
    (line,) = re.findall(r"retry-on (.*)", render(council(tmp_path), tmp_path))
    assert set(line.split()) == {"conn-failure", "empty-response", "junk-response", "response-timeout", "503"}


def test_an_instances_number_does_not_depend_on_the_others(tmp_path: Path) -> None:
    alone = GOOD[: GOOD.index("[instances.beta]")].replace(', "council-tiered/careful"', "")
    both = {i.name: i.id for i in council(tmp_path).instances}
    assert {i.name: i.id for i in council(tmp_path, alone).instances} == {"alpha": both["alpha"]}
