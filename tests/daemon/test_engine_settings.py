"""Flags that reach the executor: how much memory it may take, where it keeps prefixes, how it reads prompts."""

from pathlib import Path

import pytest
from http_server import Server, serving
from soloist.daemon.config import Config
from soloist.daemon.sources import read_config
from soloist.daemon.start import engine_settings
from tiny_models import LLAMA, random_model

PROMPT = "All work and no play makes Jack a dull boy. " * 8


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("m") / "llama", LLAMA)


def cached(server: Server) -> int:
    reply = server.complete(PROMPT, max_tokens=1)
    return int(reply.json["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_what_can_never_fit_is_a_413_with_both_figures(llama: Path) -> None:
    weights = (llama / "model.safetensors").stat().st_size
    with serving(llama, memory_limit=weights + 1_000_000) as server:
        refused = server.complete("y" * 4000, max_tokens=1)
        assert (refused.status, refused.error["code"]) == (413, "request_too_large")
        assert sum(word.isdigit() for word in refused.error["message"].split()) == 2
        stream = server.complete_events("y" * 4000, max_tokens=1)
        assert (stream.status, stream.lines[0][:9]) == (413, b'{"error":')
        server.canary()


def test_prefixes_are_kept_unless_that_is_off_and_outlive_a_restart_where_there_is_a_folder(
    llama: Path, tmp_path: Path
) -> None:
    with serving(llama, prefix_cache_bytes=0) as server:
        assert [cached(server), cached(server)] == [0, 0]
    with serving(llama, cache_dir=tmp_path) as server:
        first, second = cached(server), cached(server)
        assert first == 0 < second
    with serving(llama, cache_dir=tmp_path) as server:
        assert cached(server) > 0


def test_each_flag_has_its_place_in_the_executors_settings(tmp_path: Path) -> None:
    config = Config(
        prefix_cache_bytes=1, cache_dir=tmp_path, cache_dir_bytes=2, memory_limit=3, prefill_chunk=4, max_context=5
    )
    made = engine_settings(config, tmp_path, (("a", tmp_path),), tmp_path / "m")
    assert (made.prefix_cache_bytes, made.cache_dir, made.cache_dir_bytes) == (1, tmp_path, 2)
    assert (made.memory_limit, made.prefill_chunk, made.max_context) == (3, 4, 5)
    assert (made.adapters, made.merge_adapter) == ((("a", tmp_path),), tmp_path / "m")


@pytest.mark.parametrize(("text", "size"), [("2GiB", 2 << 30), ("500MB", 500_000_000), ("1 kb", 1000), ("7", 7)])
def test_sizes_may_be_binary_or_decimal(text: str, size: int) -> None:
    import argparse

    from soloist.daemon.sources import add_flags

    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser)
    assert read_config(parser.parse_args(["--memory-limit", text]), {}).memory_limit == size
