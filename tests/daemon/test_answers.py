"""Whole answers: what a request that is right gets."""

import math
from collections import Counter

import pytest
from http_gates import answers_repeat, default_bodies_differ
from http_server import HI, Server

ALPHABET = "alpha beta gamma delta The quick brown fox end"
NULLS = [
    "model", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "n", "seed", "stop",
    "stream", "stream_options", "logprobs", "top_logprobs", "logit_bias", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "tools", "tool_choice", "response_format", "user", "chat_template_kwargs",
]  # fmt: skip


def test_a_chat_recites_the_script_and_counts_its_tokens(stop: Server) -> None:
    reply = stop.chat()
    assert reply.status == 200 and reply.headers["content-type"] == "application/json"
    body = reply.json
    assert body["object"] == "chat.completion" and body["model"] == "stop" and body["id"].startswith("chatcmpl-")
    assert body["choices"][0]["message"] == {"role": "assistant", "content": ALPHABET}
    assert body["choices"][0]["finish_reason"] == "stop"
    usage = body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (21, 10, 31)
    assert usage["prompt_tokens_details"]["cached_tokens"] < 21


def test_a_completion_has_the_legacy_shape(stop: Server) -> None:
    body = stop.complete("x").json
    assert body["object"] == "text_completion" and body["id"].startswith("cmpl-")
    assert body["choices"] == [
        {"text": ALPHABET, "logprobs": None, "index": 0, "finish_reason": "stop", "stop_reason": None}
    ]
    assert body["usage"]["prompt_tokens"] == 1


def test_null_means_omitted_for_every_field_at_once_and_alone(stop: Server) -> None:
    assert stop.chat(**dict.fromkeys(NULLS)).text == ALPHABET
    for name in NULLS:
        assert stop.chat(**{name: None}).text == ALPHABET, name
    legacy = dict.fromkeys([*NULLS[:14], "suffix", "echo", "best_of"])
    assert stop.complete("x", **legacy).text == ALPHABET


def test_the_default_body_four_times_gives_four_answers(dist: Server) -> None:
    default_bodies_differ(dist)


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"seed": 0}, {"seed": -1}, {"seed": 2**64 - 1}])
def test_greedy_and_seeded_answers_repeat(dist: Server, fields: dict[str, int]) -> None:
    answers_repeat(dist, **fields)


def test_a_seed_of_zero_is_not_greedy_and_not_another_seed(dist: Server) -> None:
    texts = {dist.chat(max_tokens=24, **fields).text for fields in ({"seed": 0}, {"seed": 1}, {"temperature": 0})}
    assert len(texts) == 3


def test_the_seed_that_was_used_comes_back_and_reproduces_the_answer(dist: Server) -> None:
    first = dist.chat(max_tokens=24)
    seed = int(first.headers["x-soloist-seed"])
    assert first.json["usage"]["completion_tokens_details"]["seed"] == seed != 0
    again = dist.chat(max_tokens=24, seed=seed)
    assert again.text == first.text and again.headers["x-soloist-seed"] == str(seed)


def test_first_tokens_of_default_requests_follow_the_models_own_probabilities(dist: Server) -> None:
    from scipy.stats import chisquare

    drawn = Counter(dist.chat(max_tokens=1).text for _ in range(200))
    assert set(drawn) <= set("abcd")
    assert chisquare([drawn[c] for c in "abcd"], [100, 60, 30, 10]).pvalue > 1e-5


@pytest.mark.parametrize(
    ("fields", "limit"),
    [({"max_tokens": 3}, 3), ({"max_completion_tokens": 4}, 4), ({"max_tokens": 3, "max_completion_tokens": 5}, 5)],
)
def test_the_newer_name_of_the_limit_wins(loop: Server, fields: dict[str, int], limit: int) -> None:
    reply = loop.chat(**fields)
    assert reply.json["usage"]["completion_tokens"] == limit and reply.choice["finish_reason"] == "length"


def test_an_end_token_exactly_at_the_limit_is_a_stop(stop: Server) -> None:
    assert stop.chat(max_tokens=10).choice["finish_reason"] == "stop"
    assert stop.chat(max_tokens=9).choice["finish_reason"] == "length"


def test_an_answer_is_cut_to_what_the_context_leaves(loop: Server) -> None:
    reply = loop.complete("y" * 4090, max_tokens=10**12)
    assert (reply.json["usage"]["total_tokens"], reply.choice["finish_reason"]) == (4096, "length")


@pytest.mark.parametrize(
    ("stop_at", "text", "tokens"),
    [
        ("own fox", "alpha beta gamma delta The quick br", 8),
        ("ga", "alpha beta ", 3),
        (["mma", "delta"], "alpha beta ga", 4),
    ],
)
def test_a_stop_string_ends_text_and_usage_where_it_matched(
    stop: Server, stop_at: str | list[str], text: str, tokens: int
) -> None:
    for reply in (stop.chat(stop=stop_at), stop.complete(stop=stop_at)):
        assert (reply.text, reply.choice["finish_reason"]) == (text, "stop")
        assert reply.choice["stop_reason"] in stop_at
        assert reply.json["usage"]["completion_tokens"] == tokens


def test_a_stop_string_ends_an_endless_generation(loop: Server) -> None:
    reply = loop.complete(stop="w2")
    assert (reply.text, reply.json["usage"]["completion_tokens"]) == ("w0 w1 ", 3)


def test_several_choices_differ_and_count_the_prompt_once(dist: Server) -> None:
    body = dist.chat(n=4, max_tokens=24).json
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert len({choice["message"]["content"] for choice in body["choices"]}) == 4
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (21, 96)


def test_chat_logprobs_carry_token_bytes_and_sorted_alternatives(dist: Server) -> None:
    entries = dist.chat(max_tokens=5, logprobs=True, top_logprobs=4).choice["logprobs"]["content"]
    assert len(entries) == 5
    for entry in entries:
        expected = {"a": 0.5, "b": 0.3, "c": 0.15, "d": 0.05}[entry["token"]]
        assert math.isclose(entry["logprob"], math.log(expected), abs_tol=1e-3)
        assert entry["bytes"] == list(entry["token"].encode())
        assert [top["token"] for top in entry["top_logprobs"]] == list("abcd")


def test_logprobs_end_where_a_stop_string_ends_the_text(stop: Server) -> None:
    entries = stop.chat(stop="ga", logprobs=True).choice["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == ["alpha", " be", "ta ga"]
    assert entries[0]["top_logprobs"] == []


def test_completion_logprobs_have_parallel_lists_with_offsets(stop: Server) -> None:
    logprobs = stop.complete("x", max_tokens=3, logprobs=0).choice["logprobs"]
    assert logprobs["tokens"] == ["alpha", " be", "ta ga"]
    assert logprobs["text_offset"] == [0, 5, 8]
    assert logprobs["top_logprobs"][0] == {"alpha": logprobs["token_logprobs"][0]}


@pytest.mark.parametrize(
    ("fields", "drawn"),
    [({"top_p": 0}, "a"), ({"top_k": 1}, "a"), ({"min_p": 1}, "a"), ({"top_p": 0.6}, "ab"), ({"top_k": 100000}, "abcd"),
     ({"top_k": -1}, "abcd"), ({"logit_bias": {"97": -100}}, "bcd")],
)  # fmt: skip
def test_sampling_fields_reach_the_sampler(dist: Server, fields: dict[str, object], drawn: str) -> None:
    assert set(dist.complete("x", max_tokens=300, seed=7, **fields).text) == set(drawn)


def test_penalties_reach_the_sampler(dist: Server) -> None:
    assert dist.chat(HI, temperature=0, max_tokens=6, presence_penalty=2).text == "abcaaa"
    assert dist.chat(HI, temperature=0, max_tokens=8, frequency_penalty=1).text == "abacbacd"


@pytest.mark.parametrize(
    "prompt", ["xy", ["xy"], [120, 121], [[120, 121]]], ids=["text", "texts", "ids", "lists of ids"]
)
def test_the_four_forms_of_a_prompt_are_one_prompt(stop: Server, prompt: object) -> None:
    reply = stop.complete(prompt, max_tokens=3)
    assert (reply.text, reply.json["usage"]["prompt_tokens"]) == ("alpha beta ga", 2)


@pytest.mark.parametrize("prompts", [["x", "yy", "zzz"], [[120], [121, 121], [122, 122, 122]]])
def test_each_of_several_prompts_gets_its_own_choices_in_order(dist: Server, prompts: list[object]) -> None:
    body = dist.complete(prompts, n=2, max_tokens=16, seed=5).json
    assert [choice["index"] for choice in body["choices"]] == list(range(6))
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (6, 96)
    assert len({choice["text"] for choice in body["choices"]}) == 6


def test_a_prompt_among_several_can_be_asked_for_again_alone(dist: Server) -> None:
    together = dist.complete(["x", "x"], max_tokens=16, seed=5).json["choices"]
    assert together[0]["text"] == dist.complete("x", max_tokens=16, seed=5).text
    assert together[1]["text"] == dist.complete("x", max_tokens=16, seed=6).text


def test_the_model_answers_to_its_names(dist: Server) -> None:
    for name in ("dist", dist.config.model, "", "default"):
        assert dist.chat(max_tokens=1, model=name).json["model"] == "dist"
