"""The real openai SDK, retries off: answers, streams, completions, and the error class of each fault."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from http_faults import fail_after
from http_server import HI, Server, serving

ALPHABET = "alpha beta gamma delta The quick brown fox end"


def api(server: Server, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=key, max_retries=0, timeout=20)


@pytest.fixture
def client(stop: Server) -> Iterator[openai.OpenAI]:
    with api(stop) as client:
        yield client


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="stop", messages=HI)
    assert answer.choices[0].message.content == ALPHABET
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage and answer.usage.total_tokens == 31


def test_a_chat_stream(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(
        model="stop", messages=HI, stream=True, stream_options={"include_usage": True}
    ))  # fmt: skip
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ALPHABET
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage and chunks[-1].usage.completion_tokens == 10


def test_the_streaming_helper_puts_an_answer_together(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="stop", messages=HI, logprobs=True) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_completion()
    assert answer.choices[0].message.content == ALPHABET
    logprobs = answer.choices[0].logprobs
    assert logprobs and logprobs.content and len(logprobs.content) == 9


def test_completions_whole_and_streamed(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="stop", prompt=["x", "y"], max_tokens=3, logprobs=1)
    assert [choice.text for choice in answer.choices] == ["alpha beta ga"] * 2
    chunks = client.completions.create(model="stop", prompt="x", stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == ALPHABET


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["stop"]
    assert client.models.retrieve("stop").id == "stop"


def test_each_fault_has_its_error_class(client: openai.OpenAI) -> None:
    def ask(**fields: Any) -> None:
        client.chat.completions.create(**{"model": "stop", "messages": HI, **fields})

    with pytest.raises(openai.BadRequestError) as bad:
        ask(temperature=3)
    assert (bad.value.param, bad.value.type) == ("temperature", "invalid_request_error")
    with pytest.raises(openai.NotFoundError) as missing:
        ask(model="gpt-4o")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        ask(messages=[{"role": "user", "content": "y" * 5000}])
    assert long.value.code == "context_length_exceeded"


def test_a_wrong_key_is_an_authentication_error(folders: Path) -> None:
    with serving(folders / "stop", api_key=("right",)) as server:
        with api(server, "wrong") as client, pytest.raises(openai.AuthenticationError):
            client.models.list()
        with api(server, "right") as client:
            assert client.models.list().data


def test_a_failure_in_the_middle_of_a_stream_is_an_api_error(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(folders / "loop") as server, api(server) as client:
        fail_after(monkeypatch, 5)
        stream = client.chat.completions.create(model="loop", messages=HI, stream=True)
        with pytest.raises(openai.APIError):
            for _ in stream:
                pass
        with pytest.raises(openai.InternalServerError) as failed:
            client.chat.completions.create(model="loop", messages=HI)
        assert failed.value.code == "executor_failed" and failed.value.status_code == 503
