"""The door never fails of its own: whatever JSON comes, it makes a job or an error that names what is wrong."""
# ruff: noqa: E501  (tables)

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from soloist.daemon.adapters import Adapters
from soloist.daemon.config import Config
from soloist.daemon.door import open_chat, open_completion
from soloist.daemon.errors import ApiError
from soloist.daemon.features import CHAT, COMPLETION
from soloist.daemon.job import Job
from soloist.daemon.schemas import ChatBody, CompletionBody
from soloist.daemon.served import Served, make_served
from soloist.executor.engine import Engine
from soloist.executor.settings import EngineSettings, ModelFacts
from soloist.tokenizer.tokenizer import Tokenizer

FACTS = ModelFacts(320, 4096, "llama", 1, "float32", False, True)
NAMES = sorted({*ChatBody.__struct_fields__, *CompletionBody.__struct_fields__, *CHAT, *COMPLETION})
CANDIDATES = st.sampled_from([
    0, 1, -1, 2**63, 2**64, 2**70, 0.5, 1e308, -1e308, "", "x", "auto", "none", "required", [], {}, [[]], [{}], [1], ["x"],
    [None], {"type": "function"}, {"97": 1}, {"type": "text"}, [{"type": "function", "function": {"name": "f"}}],
    [{"role": "user", "content": "x"}], [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}],
    [{"role": "user", "content": [{"type": "text", "text": "x"}]}], {"include_usage": True}, {"enable_thinking": False},
])  # fmt: skip
VALUES = CANDIDATES | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@pytest.fixture(scope="module")
def model(folders: Path) -> Served:
    config = Config(model=str(folders / "dist"))
    adapters = Adapters(Engine(EngineSettings(folders / "dist")))
    return make_served(config, folders / "dist", Tokenizer.load(folders / "dist"), FACTS, adapters)


def encoded(body: Any) -> bytes:
    import json

    return json.dumps(body).encode()


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fields=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5))
def test_any_fields_make_a_job_or_a_named_fault(model: Served, fields: dict[str, Any]) -> None:
    for open_door, base in (
        (open_chat, {"messages": [{"role": "user", "content": "hi"}]}),
        (open_completion, {"prompt": "x"}),
    ):
        try:
            job = open_door(encoded({**base, **fields}), model)
        except ApiError as error:
            assert error.status in (400, 404, 413) and error.message
            assert error.param or error.code == "invalid_json"
            assert "Error" not in error.message and "object at 0x" not in error.message
        else:
            assert isinstance(job, Job) and job.requests(None)
            assert all(0 < limit <= 4096 - len(ids) for ids, limit in zip(job.prompts, job.limits, strict=True))


@settings(max_examples=200, deadline=None)
@given(raw=st.binary(max_size=40) | VALUES.map(encoded))
def test_any_bytes_make_a_job_or_a_fault(model: Served, raw: bytes) -> None:
    for open_door in (open_chat, open_completion):
        try:
            open_door(raw, model)
        except ApiError as error:
            assert error.status in (400, 404) and error.message


def test_a_text_that_cannot_fit_is_refused_without_being_tokenised(
    model: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokenizer, "encode", None)
    monkeypatch.setattr(Tokenizer, "render", None)
    text = "y" * (4096 * 16)
    for open_door, body in (
        (open_completion, {"prompt": ["x" * 9, text][1:]}),
        (open_chat, {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}),
    ):
        with pytest.raises(ApiError, match="at least 4096 tokens") as caught:
            open_door(orjson.dumps(body), model)
        assert caught.value.code == "context_length_exceeded"


def test_generation_config_gives_defaults_only_when_asked_for(folders: Path, tmp_path: Path) -> None:
    from soloist.daemon.served import model_defaults
    from soloist.sampler.params import DEFAULTS

    file = tmp_path / "generation_config.json"
    assert model_defaults(tmp_path) == DEFAULTS
    file.write_text('{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05}')
    chosen = model_defaults(tmp_path)
    assert (chosen.temperature, chosen.top_k, chosen.top_p, chosen.repetition_penalty) == (0.6, 20, 0.95, 1.05)
    file.write_text('{"do_sample": false, "temperature": 0.6}')
    assert model_defaults(tmp_path).greedy
    file.write_text('{"temperature": 7, "top_k": true, "top_p": 0.9, "min_p": "x"}')
    assert model_defaults(tmp_path).top_p == 0.9 and model_defaults(tmp_path).temperature == 1.0
    for broken in ("", "[]", "{"):
        file.write_text(broken)
        assert model_defaults(tmp_path) == DEFAULTS


def test_explicit_zero_beats_the_models_own_defaults(folders: Path, tmp_path: Path) -> None:
    from http_server import serving
    from tiny_models import ABCD, scripted

    scripted(tmp_path / "m", dist=ABCD, generation_config={"do_sample": True, "top_k": 2})
    with serving(tmp_path / "m", sampling_defaults="model") as server:
        assert set(server.chat(max_tokens=100).text) == {"a", "b"}
        assert set(server.chat(max_tokens=300, top_k=0).text) == set("abcd")
        assert set(server.chat(max_tokens=24, temperature=0).text) == {"a"}
        assert server.get("/v1/models").json["data"][0]["sampling_defaults"]["top_k"] == 2
