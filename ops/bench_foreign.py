"""`soloist bench --foreign`: does a model's sampled text hold words of scripts that do not belong in it?

Twenty conversations of two turns are sent as a default client sends them (temperature and seed omitted). Each drawn
token is held against the scripts of the conversation's own language, and the count is laid beside the one that a
sampler with a closed uniform interval would give.
"""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from ..tokenizer.tokenizer import Tokenizer
from .bench_servers import Server, soloist
from .foreign import CLOSED_END, Tally, foreign_ids, home_scripts, is_foreign

TOKENS_A_TURN = 60
REQUEST_S = 600.0
OPENINGS = (
    "Describe a walk through a market on a Saturday morning.",
    "What should I pack for three days in the mountains?",
    "Explain to a child why the sky is dark at night.",
    "Write a short letter to a neighbour about a noisy dog.",
    "How do I keep basil alive on a kitchen window sill?",
    "Tell me about the invention of the bicycle.",
    "Give me four ideas for a birthday without a party.",
    "What makes bread rise, and what can go wrong?",
    "Summarise the rules of chess for a beginner.",
    "Write the opening of a story about a lighthouse keeper.",
    "How does a library decide which books to buy?",
    "Compare travelling by train with travelling by car.",
    "What is a good way to learn ten new words a day?",
    "Describe the sound of rain to someone who cannot hear.",
    "Plan a dinner for six people, two of whom eat no meat.",
    "Why do some metals rust and others do not?",
    "Write a polite note that declines an invitation.",
    "What did people use before refrigerators?",
    "Explain compound interest with an example.",
    "Tell me three facts about octopuses.",
)
SECOND = "Thank you. Now say the same again, in other words and a little longer."


def measure_foreign(folder: Path, arguments: tuple[str, ...], file: Path | None) -> int:
    """Serve the model, hold the conversations, print observed beside theoretical.."""
    tokenizer = Tokenizer.load(folder)
    server = soloist(folder, 8, arguments)
    server.start()
    try:
        drawn = [token for opening in OPENINGS for token in _conversation(server, opening)]
    finally:
        server.stop()
    home = home_scripts(" ".join((*OPENINGS, SECOND)))
    words = [token for token in drawn if is_foreign(token, home)]
    known = [tokenizer.token_text(token) for token in range(tokenizer.vocab_size)]
    share = len(foreign_ids(known, home)) / len(known)
    tally = Tally(len(drawn), len(words), len(known), share)
    print(tally.line())
    if words:
        print("they were:", ", ".join(repr(word) for word in words[:20]))
    if file is not None:
        report = {"draws": tally.draws, "foreign": words, "share": share, "vocabulary": len(known)}
        file.write_bytes(orjson.dumps(report | {"expected_if_closed": tally.expected(CLOSED_END)}) + b"\n")
    return 0


def _conversation(server: Server, opening: str) -> Iterator[str]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": opening}]
    for _ in range(2):
        answer = _ask(server, messages)
        yield from (entry["token"] for entry in (answer["logprobs"] or {"content": []})["content"])
        messages += [{"role": "assistant", "content": answer["message"]["content"] or ""}]
        messages += [{"role": "user", "content": SECOND}]


def _ask(server: Server, messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = {"messages": messages, "max_tokens": TOKENS_A_TURN, "logprobs": True}
    request = urllib.request.Request(
        f"{server.base_url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **server.headers},
    )
    with urllib.request.urlopen(request, timeout=REQUEST_S) as reply:
        choice: dict[str, Any] = json.load(reply)["choices"][0]
    return choice
