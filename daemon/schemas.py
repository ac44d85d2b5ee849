"""The two request bodies as types. UNSET is an omitted field; it and null mean the documented default, 0 never."""

from typing import Any, TypeAlias, TypeVar

from msgspec import UNSET, Struct, UnsetType

T = TypeVar("T")
Maybe: TypeAlias = T | UnsetType | None


class Body(Struct, kw_only=True):
    """What both endpoints know. Ranges are checked in `validate`."""

    model: Maybe[str] = UNSET
    adapter: Maybe[str] = UNSET
    max_tokens: Maybe[int] = UNSET
    max_completion_tokens: Maybe[int] = UNSET
    temperature: Maybe[float] = UNSET
    top_p: Maybe[float] = UNSET
    top_k: Maybe[int] = UNSET
    min_p: Maybe[float] = UNSET
    n: Maybe[int] = UNSET
    seed: Maybe[int] = UNSET
    stop: Maybe[str | list[str]] = UNSET
    presence_penalty: Maybe[float] = UNSET
    frequency_penalty: Maybe[float] = UNSET
    repetition_penalty: Maybe[float] = UNSET
    logit_bias: Maybe[dict[str, float]] = UNSET
    stream: Maybe[bool] = UNSET
    stream_options: Maybe[dict[str, Any]] = UNSET


class ChatBody(Body, kw_only=True):
    messages: Maybe[list[dict[str, Any]]] = UNSET
    logprobs: Maybe[bool] = UNSET
    top_logprobs: Maybe[int] = UNSET
    tools: Maybe[list[dict[str, Any]]] = UNSET
    tool_choice: Maybe[str | dict[str, Any]] = UNSET
    parallel_tool_calls: Maybe[bool] = UNSET
    response_format: Maybe[dict[str, Any]] = UNSET
    chat_template_kwargs: Maybe[dict[str, Any]] = UNSET


class CompletionBody(Body, kw_only=True):
    prompt: Maybe[str | list[Any]] = UNSET
    logprobs: Maybe[int] = UNSET


def given(value: T | UnsetType | None, default: T) -> T:
    """The value, or the default where the field was omitted or null. 0, "" and [] are values."""
    return default if value is UNSET or value is None else value
