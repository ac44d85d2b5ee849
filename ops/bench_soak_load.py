"""The soak's requests: of every kind that a client may send, many of them broken off."""

import random
from typing import Any

from .bench_plan import CHAT, COMPLETIONS, Cue, Shot
from .bench_prompts import WORDS

AT_ONCE = 12
BROKEN_OFF = 0.4  # are told to be; about three of ten are still running by then


def mixed(dice: random.Random, count: int) -> tuple[Shot, ...]:
    """Requests of all kinds, twelve at a time; many are broken off, while queued, in their prefill or later."""
    shots = []
    for place in range(count):
        body, path = _body(dice)
        after = Cue(place - AT_ONCE) if place >= AT_ONCE else None
        leave = None
        if dice.random() < BROKEN_OFF:
            leave = Cue(place, dice.choice((0, 0, 1, 4)), dice.choice((0.0, 0.005, 0.02)))
        shots.append(Shot(body, path, after, leave))
    return tuple(shots)


def _body(dice: random.Random) -> tuple[dict[str, Any], str]:
    length = dice.choice((4, 20, 60, 150))
    shared = "the same beginning of many prompts, " * dice.choice((0, 0, 4, 12))
    text = shared + " ".join(dice.choices(WORDS, k=length))
    body: dict[str, Any] = {"max_tokens": dice.choice((1, 8, 24, 48)), "stream": dice.random() < 0.7}
    body |= dice.choice(
        (
            {},
            {"temperature": 0},
            {"seed": dice.randrange(1 << 32), "top_p": 0.9},
            {"top_k": 40, "min_p": 0.02},
            {"repetition_penalty": 1.1, "presence_penalty": 0.3},
            {"stop": ["the", "zz"]},
        )
    )
    if dice.random() < 0.15:
        body["n"] = 2
    if dice.random() < 0.5:
        return body | {"messages": [{"role": "user", "content": text}]}, CHAT
    return body | {"prompt": text}, COMPLETIONS
