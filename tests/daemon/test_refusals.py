"""What is wrong with a request is said before the queue, in the request's own terms, and the next one is served."""
# ruff: noqa: E501  (one row a case)

import json
from typing import Any

import pytest
from http_server import CHAT, COMPLETIONS, HI, Server, serving
from soloist.daemon import features

BAD_FIELDS: list[tuple[str, Any, str]] = [
    ("temperature", 2.1, "temperature"), ("temperature", -0.1, "temperature"), ("temperature", "hot", "temperature"),
    ("temperature", True, "temperature"), ("temperature", [], "temperature"),
    ("top_p", 1.1, "top_p"), ("top_p", -1, "top_p"), ("top_p", "x", "top_p"),
    ("top_k", -2, "top_k"), ("top_k", 1.5, "top_k"), ("top_k", "x", "top_k"), ("top_k", False, "top_k"),
    ("min_p", 1.5, "min_p"), ("min_p", 1e308, "min_p"), ("min_p", [], "min_p"),
    ("presence_penalty", 2.5, "presence_penalty"), ("frequency_penalty", -2.5, "frequency_penalty"),
    ("repetition_penalty", 0, "repetition_penalty"), ("repetition_penalty", -1, "repetition_penalty"),
    ("repetition_penalty", 11, "repetition_penalty"),
    ("seed", "s", "seed"), ("seed", 1.5, "seed"), ("seed", 2**64, "seed"), ("seed", -(2**63) - 1, "seed"), ("seed", True, "seed"),
    ("max_tokens", 0, "max_tokens"), ("max_tokens", -1, "max_tokens"), ("max_tokens", "3", "max_tokens"),
    ("max_tokens", 1.0, "max_tokens"), ("max_completion_tokens", 0, "max_completion_tokens"),
    ("n", 0, "n"), ("n", 9, "n"), ("n", "x", "n"),
    ("stop", [1], "stop[0]"), ("stop", 5, "stop"), ("stop", {}, "stop"), ("stop", "", "stop"), ("stop", ["a", ""], "stop[1]"),
    ("stop", ["x"] * 17, "stop"),
    ("logit_bias", {"97": None}, "logit_bias"), ("logit_bias", "x", "logit_bias"), ("logit_bias", {"97": 101}, "logit_bias.97"),
    ("logit_bias", {"274": 1}, "logit_bias.274"), ("logit_bias", {"-1": 1}, "logit_bias.-1"), ("logit_bias", {"a": 1}, "logit_bias.a"),
    ("stream", "yes", "stream"), ("stream", 1, "stream"), ("stream_options", 7, "stream_options"),
    ("stream_options", {"include_usage": True}, "stream_options"),
    ("model", 5, "model"), ("user", 5, "user"), ("metadata", "x", "metadata"), ("store", True, "store"),
    ("service_tier", "flex", "service_tier"),
    ("response_format", {"type": "banana"}, "response_format"), ("response_format", "json", "response_format"),
    ("xtc_threshold", 0.9, "xtc_threshold"), ("xtc_probability", 0.5, "xtc_probability"), ("guided_json", {}, "guided_json"),
    ("min_tokens", 5, "min_tokens"), ("ignore_eos", True, "ignore_eos"),
]  # fmt: skip
BAD_CHAT: list[tuple[str, Any, str]] = [
    ("messages", None, "messages"), ("messages", [], "messages"), ("messages", "hi", "messages"),
    ("messages", ["hi"], "messages[0]"), ("messages", [[]], "messages[0]"), ("messages", [{}], "messages[0].role"),
    ("messages", [{"role": "robot", "content": "x"}], "messages[0].role"),
    ("messages", [{"role": "user", "content": 5}], "messages[0].content"),
    ("messages", [{"role": "user", "content": None}], "messages[0].content"),
    ("messages", [{"role": "system"}], "messages[0].content"),
    ("messages", [{"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "image_url", "image_url": {}}]}],
     "messages[0].content[1]"),
    ("messages", [{"role": "user", "content": [7]}], "messages[0].content[0]"),
    ("messages", [{"role": "user", "content": "x", "name": 5}], "messages[0].name"),
    ("messages", [*HI, {"role": "assistant", "tool_calls": 5}], "messages[1].tool_calls"),
    ("messages", [*HI, {"role": "assistant", "tool_calls": [{}]}], "messages[1].tool_calls[0]"),
    ("logprobs", "x", "logprobs"), ("logprobs", 1, "logprobs"), ("top_logprobs", 21, "top_logprobs"),
    ("top_logprobs", 2, "top_logprobs"), ("tools", "x", "tools"), ("tools", [1], "tools[0]"), ("tools", [{}], "tools[0].type"),
    ("tools", [{"type": "function"}], "tools[0].function"), ("tool_choice", 5, "tool_choice"),
    ("tool_choice", "required", "tool_choice"), ("tool_choice", "x", "tool_choice"), ("parallel_tool_calls", 1, "parallel_tool_calls"),
    ("response_format", {"type": "json_schema"}, "response_format"), ("response_format", {}, "response_format"), ("chat_template_kwargs", "x", "chat_template_kwargs"),
    ("functions", [{"name": "f"}], "functions"), ("modalities", ["audio"], "modalities"),
    ("tool_choice", {"type": "function", "function": {"name": "f"}}, "tool_choice"),
]  # fmt: skip
BAD_COMPLETIONS: list[tuple[str, Any, str]] = [
    ("prompt", None, "prompt"), ("prompt", "", "prompt"), ("prompt", [], "prompt"), ("prompt", [""], "prompt[0]"),
    ("prompt", 5, "prompt"), ("prompt", [[]], "prompt[0]"), ("prompt", [1, "x"], "prompt[1]"), ("prompt", [True], "prompt[0]"),
    ("prompt", [274], "prompt[0]"), ("prompt", [-1], "prompt[0]"), ("prompt", [[120], [5, 10**9]], "prompt[1][1]"),
    ("prompt", ["x"] * 100, "prompt"), ("logprobs", True, "logprobs"), ("logprobs", 21, "logprobs"), ("echo", True, "echo"),
    ("suffix", "x", "suffix"), ("best_of", 2, "best_of"), ("response_format", {"type": "json_object"}, "response_format"),
]  # fmt: skip


def refused(server: Server, path: str, body: dict[str, Any], param: str) -> None:
    for stream in ({}, {"stream": True}) if "stream" not in body and "stream_options" not in body else ({},):
        reply = server.request("POST", path, {**body, **stream})
        assert reply.status == 400, (body, reply.body)
        assert reply.headers["content-type"] == "application/json"
        error = reply.error
        assert set(error) == {"message", "type", "param", "code"}
        assert error["param"] == param and error["type"] == "invalid_request_error" and error["message"]
    server.canary()


@pytest.mark.parametrize(("field", "value", "param"), BAD_FIELDS, ids=str)
def test_a_bad_field_is_named_on_both_endpoints(stop: Server, field: str, value: Any, param: str) -> None:
    refused(stop, CHAT, {"messages": HI, "max_tokens": 3} | {field: value}, param)
    refused(stop, COMPLETIONS, {"prompt": "x", "max_tokens": 3} | {field: value}, param)


@pytest.mark.parametrize(("field", "value", "param"), BAD_CHAT, ids=str)
def test_a_bad_chat_field_is_named(stop: Server, field: str, value: Any, param: str) -> None:
    refused(stop, CHAT, {"messages": HI, "max_tokens": 3} | {field: value}, param)


@pytest.mark.parametrize(("field", "value", "param"), BAD_COMPLETIONS, ids=str)
def test_a_bad_completions_field_is_named(stop: Server, field: str, value: Any, param: str) -> None:
    refused(stop, COMPLETIONS, {"prompt": "x", "max_tokens": 3} | {field: value}, param)


BODIES = {
    "invalid UTF-8": b'{"messages":[{"role":"user","content":"\xff\xfe"}]}',
    "truncated": b'{"messages": [',
    "an array": b"[1]",
    "empty": b"",
    "NaN": b'{"temperature":NaN,"messages":[{"role":"user","content":"x"}]}',
    "infinity": b'{"temperature":1e999,"messages":[{"role":"user","content":"x"}]}',
    "a lone surrogate": b'{"messages":[{"role":"user","content":"\\ud83d"}]}',
    "10,000 nested arrays": b'{"messages":' + b"[" * 10000 + b"]" * 10000 + b"}",
    "200 nested arrays": b'{"x":' + b"[" * 200 + b"]" * 200 + b',"messages":[{"role":"user","content":"x"}]}',
    "a byte order mark": b'\xef\xbb\xbf{"messages":[{"role":"user","content":"x"}]}',
}


@pytest.mark.parametrize("name", BODIES)
def test_malformed_bytes_are_a_400_in_our_own_words(stop: Server, name: str) -> None:
    for path in (CHAT, COMPLETIONS):
        reply = stop.request("POST", path, BODIES[name])
        assert reply.status == 400, reply.body
        assert reply.error["code"] == "invalid_json"
    stop.canary()


def test_paired_surrogate_escapes_are_one_character(stop: Server) -> None:
    body = b'{"max_tokens":1,"messages":[{"role":"user","content":"\\ud83d\\ude00"}]}'
    assert stop.request("POST", CHAT, body).json["usage"]["prompt_tokens"] == 23


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(stop: Server) -> None:
    for length in (6000, 4096):
        error = stop.complete("y" * length, max_tokens=1).error
        assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
        assert str(length) in error["message"] and "4096" in error["message"]
    reply = stop.request("POST", CHAT, {"messages": [{"role": "user", "content": "y" * 6000}], "stream": True})
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "context_length_exceeded", "messages")
    last = stop.complete("y" * 4095, max_tokens=10)
    assert (last.json["usage"]["completion_tokens"], last.choice["finish_reason"]) == (1, "length")


@pytest.mark.parametrize("name", ["gpt-4o", "a/b", "../../etc", "STOP", "/tmp"])
def test_an_unknown_model_is_a_404_at_once(stop: Server, name: str) -> None:
    for reply in (stop.chat(model=name), stop.complete(model=name), stop.get(f"/v1/models/{name}")):
        assert reply.status == 404
        assert (reply.error["code"], reply.error["param"]) == ("model_not_found", "model")


HARMLESS = {
    "presence_penalty": 0, "n": 1, "tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "store": False,
    "parallel_tool_calls": True, "service_tier": "auto", "user": "u", "metadata": {"k": "v"}, "safety_identifier": "x",
    "prompt_cache_key": "y", "xtc_probability": 0, "xtc_threshold": 0.1, "functions": [], "modalities": ["text"],
}  # fmt: skip


def test_values_that_ask_for_nothing_are_accepted_in_silence(stop: Server) -> None:
    reply = stop.chat(max_tokens=1, **HARMLESS)
    assert reply.status == 200 and "x-soloist-ignored" not in reply.headers


def test_fields_never_heard_of_are_served_counted_and_named(stop: Server) -> None:
    reply = stop.chat(max_tokens=1, some_future_field={"z": 1}, **{"odd\r\nname": 1})
    assert reply.status == 200
    assert reply.headers["x-soloist-ignored"] == "some_future_field, odd%0D%0Aname"
    assert 'soloist_ignored_fields_total{field="some_future_field"} 1.0' in stop.get("/metrics").body.decode()


def test_every_field_of_the_schemas_is_supported_and_in_no_refusal_table() -> None:
    from soloist.daemon.schemas import ChatBody, CompletionBody

    assert not set(ChatBody.__struct_fields__) & set(features.CHAT)
    assert not set(CompletionBody.__struct_fields__) & set(features.COMPLETION)


def test_a_model_without_a_template_refuses_chat_and_serves_completions(folders: Any) -> None:
    with serving(folders / "untemplated") as server:
        assert server.chat().error["code"] == "no_chat_template"
        assert server.complete("", max_tokens=1).json["usage"]["prompt_tokens"] == 1, (
            "its BOS makes a prompt of nothing"
        )


def test_numbers_that_json_cannot_hold_never_get_out(dist: Server) -> None:
    reply = dist.chat(max_tokens=2, logprobs=True, top_logprobs=20, logit_bias={"97": 100})

    def no(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(reply.body, parse_constant=no)
