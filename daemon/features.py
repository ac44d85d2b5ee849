"""Fields of the API that we know and do not support, and the values with which they ask for nothing.

A field in this table is refused by name unless its value asks for nothing; null always does. A field in neither this
table nor the schemas has never been heard of: it is let through, counted, and named in `x-soloist-ignored`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from .errors import BadRequest

Harmless = Callable[[Any], bool]


def _only(*values: Any) -> Harmless:
    """These values ask for nothing. True and 1 are told apart."""
    return lambda value: any(value == v and isinstance(value, bool) == isinstance(v, bool) for v in values)


def _number(*values: float) -> Harmless:
    return lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value in values


def _is(kind: type) -> Harmless:
    return lambda value: isinstance(value, kind)


def _never(value: Any) -> bool:
    return False


def _plain_text(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "text"


# What a client tells about itself: any value of the right type is accepted, for it asks for nothing.
LABELS: dict[str, Harmless] = {
    "user": _is(str),
    "safety_identifier": _is(str),
    "prompt_cache_key": _is(str),
    "metadata": _is(dict),
}

BOTH: dict[str, Harmless] = LABELS | {
    "adapters": _never,
    "allowed_token_ids": _never,
    "draft_model": _never,
    "dry_multiplier": _number(0),
    "dynatemp_range": _number(0),
    "grammar": _never,
    "guided_choice": _never,
    "guided_grammar": _never,
    "guided_json": _never,
    "guided_regex": _never,
    "ignore_eos": _only(False),
    "include_stop_str_in_output": _only(False),
    "length_penalty": _number(1),
    "logits_processors": _only([]),
    "lora": _only([]),
    "min_tokens": _number(0),
    "mirostat": _number(0),
    "num_draft_tokens": _number(0),
    "prompt_logprobs": _number(0),
    "skip_special_tokens": _only(True),
    "stop_token_ids": _only([]),
    "store": _only(False),
    "structured_outputs": _never,
    "tfs_z": _number(1),
    "service_tier": _only("auto", "default"),
    "top_a": _number(0),
    "typical_p": _number(1),
    "use_beam_search": _only(False),
    "xtc_probability": _number(0),
    "xtc_threshold": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 0.5,
}

CHAT: dict[str, Harmless] = BOTH | {
    "add_generation_prompt": _only(True),
    "audio": _never,
    "continue_final_message": _only(False),
    "echo": _only(False),
    "function_call": _only("none", "auto"),
    "functions": _only([]),
    "modalities": _only(["text"], []),
    "prediction": _never,
    "reasoning_effort": _never,
    "verbosity": _only("medium"),
    "web_search_options": _never,
}

COMPLETION: dict[str, Harmless] = BOTH | {
    "echo": _only(False),
    "parallel_tool_calls": _is(bool),
    "response_format": _plain_text,
    "suffix": _only(""),
    "tools": _only([]),
}


def screen(body: dict[str, Any], supported: frozenset[str], table: Mapping[str, Harmless]) -> tuple[str, ...]:
    """Refuse what is known and not supported. Returns the names of fields that we have never heard of."""
    unheard = []
    for name, value in body.items():
        if name in supported or value is None:
            continue
        if name not in table:
            unheard.append(name)
        elif not table[name](value):
            raise BadRequest(_refusal(name), param=name, code="unsupported_parameter")
    return tuple(unheard)


def _refusal(name: str) -> str:
    if name in LABELS:
        return f"{name!r} has the wrong type."
    return f"{name!r} with this value is not supported by this server. Leave it out to be served without it."
