"""Adapters over HTTP: chosen by name, listed, loaded and unloaded while requests run, by those who may."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adapter_files import VALUE, draw, layered, merged, weights_of, write_mlx
from http_server import COMPLETIONS, Server, serving
from safetensors.numpy import save_file
from soloist.__main__ import _find_adapter
from soloist.daemon import exit_codes
from tiny_models import LLAMA, random_model

ADAPTERS = "/v1/adapters"
PROMPT = "The quick brown fox jumps over the lazy dog and again"


def ended(*flags: str) -> tuple[int, str, str]:
    """`soloist serve`, which must end by itself: its exit code and what it printed."""
    command = [sys.executable, "-m", "soloist", "serve", "--port", "0", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random llama, two adapters for it, and the model with the first one merged by NumPy."""
    root = tmp_path_factory.mktemp("adapters")
    weights = weights_of(random_model(root / "llama", LLAMA))
    for name, seed in (("one", 1), ("two", 2)):
        factors = draw(weights, layered(VALUE), seed=seed)
        write_mlx(root / name, factors)
        random_model(root / f"with-{name}", LLAMA)
        save_file(merged(weights, factors, 2.0), root / f"with-{name}" / "model.safetensors", {"format": "mlx"})
    (root / "empty").mkdir()
    return root


def greedy(server: Server, **fields: Any) -> str:
    reply = server.complete(PROMPT, temperature=0, max_tokens=12, **fields)
    assert reply.status == 200, reply.body
    return reply.text


@pytest.fixture(scope="module")
def right(root: Path) -> dict[str, str]:
    """What each must answer, by models in which nothing but plain weights is served."""
    answers = {}
    for name, folder in (("llama", "llama"), ("one", "with-one"), ("two", "with-two")):
        with serving(root / folder) as server:
            answers[name] = greedy(server)
    assert len(set(answers.values())) == 3
    return answers


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    adapters = (f"one={root / 'one'}", f"two={root / 'two'}")
    with serving(root / "llama", adapter=adapters) as server:
        yield server


@pytest.mark.parametrize(
    ("fields", "answering"),
    [
        ({}, "llama"),
        ({"model": "llama"}, "llama"),
        ({"model": "default", "adapter": None}, "llama"),
        ({"model": "one"}, "one"),
        ({"adapter": "one"}, "one"),
        ({"model": "llama", "adapter": "two"}, "two"),
        ({"model": "two", "adapter": "two"}, "two"),
    ],
)
def test_a_request_names_its_adapter(
    server: Server, right: dict[str, str], fields: dict[str, Any], answering: str
) -> None:
    reply = server.complete(PROMPT, temperature=0, max_tokens=12, **fields)
    assert (reply.json["model"], reply.text) == (answering, right[answering])
    events = server.complete_events(PROMPT, temperature=0, max_tokens=12, **fields)
    assert events.text == right[answering] and {chunk["model"] for chunk in events.chunks} == {answering}


def test_fingerprints_tell_adapters_apart(server: Server) -> None:
    prints = [server.complete(max_tokens=1, model=name).json["system_fingerprint"] for name in ("llama", "one", "two")]
    assert len(set(prints)) == 3


def test_rows_with_different_adapters_run_at_the_same_time(server: Server, right: dict[str, str]) -> None:
    names = ["one", "llama", "two", "one", "llama", "two"]
    got: dict[int, str] = {}

    def ask(place: int) -> None:
        got[place] = greedy(server, model=names[place])

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[place] for place in range(len(names))] == [right[name] for name in names]


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"adapter": "ghost"}, 404, "adapter"),
        ({"model": "ghost"}, 404, "model"),
        ({"model": "one", "adapter": "two"}, 400, "adapter"),
        ({"adapter": 5}, 400, "adapter"),
        ({"adapters": "one"}, 400, "adapters"),
    ],
)
def test_a_wrong_choice_is_named(server: Server, fields: dict[str, Any], status: int, param: str) -> None:
    for reply in (server.complete(**fields), server.chat(**fields)):
        assert (reply.status, reply.error["param"]) == (status, param)
        if status == 404:
            assert reply.error["code"] == "model_not_found"


def test_models_lists_the_adapters_with_base_rank_scale_and_content(server: Server) -> None:
    base, one, two = server.get("/v1/models").json["data"]
    assert [card["id"] for card in (base, one, two)] == ["llama", "one", "two"]
    assert one["parent"] == "llama" and one["object"] == "model"
    facts = one["adapter"]
    assert (facts["rank"], facts["scale"], facts["pairs"], facts["format"]) == (4, 2.0, 4, "mlx-lm lora")
    assert len(facts["content_hash"]) == 64 and facts["content_hash"] != two["adapter"]["content_hash"]
    assert server.get("/v1/models/one").json == one and "path" not in one
    assert server.get("/v1/models/ghost").status == 404


@pytest.fixture
def fresh(root: Path) -> Iterator[Server]:
    with serving(root / "llama") as server:
        yield server


def load(server: Server, name: Any, path: Any, **headers: str) -> Any:
    return server.request("POST", ADAPTERS, {"name": name, "path": str(path)}, **headers)


def test_an_adapter_comes_and_goes_while_the_model_serves(fresh: Server, root: Path, right: dict[str, str]) -> None:
    assert fresh.get(ADAPTERS).json == {"object": "list", "data": []}
    assert fresh.complete(model="org/late").status == 404
    card = load(fresh, "org/late", root / "one")
    assert (card.status, card.json["id"], card.json["path"]) == (200, "org/late", str(root / "one"))
    assert greedy(fresh, model="org/late") == right["one"] and greedy(fresh) == right["llama"]
    assert fresh.get(f"{ADAPTERS}/org/late").json == card.json == fresh.get(ADAPTERS).json["data"][0]
    again = load(fresh, "org/late", root / "two")
    assert (again.status, again.error["code"], again.error["param"]) == (409, "already_exists", "name")
    gone = fresh.request("DELETE", f"{ADAPTERS}/org/late")
    assert gone.json == {"id": "org/late", "object": "model", "deleted": True}
    assert fresh.complete(model="org/late").status == 404 == fresh.request("DELETE", f"{ADAPTERS}/org/late").status
    assert load(fresh, "org/late", root / "two").status == 200
    assert greedy(fresh, model="org/late") == right["two"], "the same name with other weights is another adapter"


@pytest.mark.parametrize("checked", [False, True], ids=["by the executor", "by its headers"])
def test_an_adapter_that_does_not_fit_is_refused_and_nothing_changes(
    root: Path, right: dict[str, str], checked: bool
) -> None:
    with serving(root / "llama") as server:
        if checked:
            server.daemon.find_adapter = _find_adapter
        for path in (root / "empty", root / "nowhere", root / "llama"):
            reply = load(server, "bad", path)
            assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "adapter_refused", "path")
        assert server.get(ADAPTERS).json["data"] == [] and greedy(server) == right["llama"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"), ({"name": "x"}, "path"), ({"name": 5, "path": "x"}, "name"), ({"name": "x", "path": ""}, "path"),
        ({"name": "a b", "path": "x"}, "name"), ({"name": "/x", "path": "x"}, "name"), ([], None),
        ({"name": "x", "path": "x", "scale": 2}, "scale"), ({"name": "llama", "path": "x"}, "name"),
        ({"name": "default", "path": "x"}, "name"),
    ],
)  # fmt: skip
def test_a_bad_order_is_named(server: Server, body: Any, param: str | None) -> None:
    reply = server.request("POST", ADAPTERS, body)
    assert (reply.status, reply.error["param"]) == (400, param)


def test_the_last_request_of_an_adapter_finishes_after_it_is_gone(fresh: Server, root: Path) -> None:
    load(fresh, "one", root / "one")
    with fresh._open(
        "POST", COMPLETIONS, {"prompt": PROMPT, "model": "one", "stream": True, "max_tokens": 300}, {}
    ) as got:
        got.readline()
        assert fresh.request("DELETE", f"{ADAPTERS}/one").status == 200
        assert got.read().endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"X_Forwarded_For": "203.0.113.7"},
        {"Forwarded": "for=203.0.113.7"},
    ],
)
def test_without_admin_keys_no_page_and_no_proxy_may_change_what_is_served(
    fresh: Server, root: Path, headers: dict[str, str]
) -> None:
    assert fresh.config.cors_origin == ("*",)
    for reply in (load(fresh, "x", root / "one", **headers), fresh.get(ADAPTERS, **headers)):
        assert reply.status == 403
    assert fresh.request("DELETE", f"{ADAPTERS}/x", **headers).status == 403


def test_admin_keys_open_these_paths_and_no_others(root: Path, tmp_path: Path) -> None:
    keys = tmp_path / "admin"
    keys.write_text("ops:sk-admin\n")
    with serving(root / "llama", admin_key_file=keys, api_key=("sk-api",)) as server:
        assert server.get(ADAPTERS).status == 401, "an API key is no admin key"
        admin = {"Authorization": "Bearer sk-admin"}
        assert server.get(ADAPTERS, **admin).json["data"] == []
        assert load(server, "one", root / "one", X_Forwarded_For="203.0.113.7", **admin).status == 200
        assert server.get("/v1/models", **admin).status == 401, "nor the other way round"
        assert server.get("/v1/models").json["data"][1]["id"] == "one"


def test_api_keys_are_asked_for_where_there_are_no_admin_keys(root: Path) -> None:
    with serving(root / "llama", api_key=("sk-api",)) as server:
        assert server.get(ADAPTERS).status == 200
        assert server.get(ADAPTERS, Authorization="Bearer x").status == 401


@pytest.mark.parametrize(
    ("given", "word"),
    [("nowhere", "nowhere"), ("empty", "empty"), ("llama", "llama")],
    ids=["missing", "empty", "a model"],
)
def test_a_bad_adapter_ends_the_start_at_once_with_its_own_number(root: Path, given: str, word: str) -> None:
    for flags in (["--adapter", f"bad={root / given}"], ["--merge-adapter", str(root / given)]):
        code, out, err = ended("--model", str(root / "llama"), *flags)
        assert (code, out) == (exit_codes.ADAPTER_REFUSED, "")
        assert err.startswith("soloist: adapter ") and err.count("\n") == 1 and word in err


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--adapter", "nopath"], "NAME=PATH"),
        (["--adapter", "a=x", "--adapter", "a=y"], "twice"),
        (["--adapter", "default=x"], "default"),
        (["--adapter", "llama=x"], "served-model-name"),
        (["--admin-key-file", "/nonexistent"], "admin_key_file"),
        (["--tool-parser", "nonsense"], "tool_parser"),
    ],
)
def test_flags_that_cannot_be_meant_are_one_line(root: Path, flags: list[str], named: str) -> None:
    code, _, err = ended("--model", str(root / "llama"), *flags)
    assert code == exit_codes.CONFIGURATION and named in err.splitlines()[-1]


def test_a_merged_adapter_is_in_the_weights_and_its_strength_is_told(root: Path, right: dict[str, str]) -> None:
    with serving(root / "llama", merge_adapter=str(root / "one")) as server:
        assert greedy(server) == right["one"]
        (card,) = server.get("/v1/models").json["data"]
        merged_adapter = card["merged_adapter"]
        assert abs(merged_adapter["median_strength"] - 1) < 1e-3 and abs(merged_adapter["effective_scale"] - 2) < 1e-3
        assert len(merged_adapter["content_hash"]) == 64


def test_states_of_a_merged_model_are_not_those_of_the_plain_one(
    root: Path, right: dict[str, str], tmp_path: Path
) -> None:
    """They may lie in one --cache-dir."""
    for merge, answer in ((None, "llama"), (str(root / "one"), "one"), (None, "llama")):
        with serving(root / "llama", merge_adapter=merge, cache_dir=tmp_path) as server:
            reply = server.complete(PROMPT * 4, temperature=0, max_tokens=1)
            cached = reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert greedy(server) == right[answer]
    assert cached > 0, "the third run finds what the first one left"
