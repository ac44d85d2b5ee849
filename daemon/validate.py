"""The door for numbers: every field of a request is checked against its range and the loaded model before the queue."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ..sampler.keys import SEED_MAX, SEED_MIN
from ..sampler.params import SamplingParams
from .errors import BadRequest, ContextExceeded
from .schemas import Body, Maybe, given

MOST_STOPS = 16
MOST_TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What the loaded model allows. vocabulary: ids below it exist both as text and as logits. context: tokens.

    choices: most choices that one prompt may ask for. prompts: most prompts of one request. token_text: bytes of the
    longest token, so that a text which cannot fit is refused without being tokenised.
    """

    vocabulary: int
    context: int
    choices: int
    prompts: int
    token_text: int

    def check_length(self, characters: int, param: str) -> None:
        """Raises ContextExceeded for a text that is too long however it is cut into tokens."""
        least = characters // self.token_text
        if least >= self.context:
            raise ContextExceeded(least, self.context, param, about="at least ")


def typed(kind: type[Any], body: Mapping[str, Any]) -> Any:
    """The body as a struct; a wrongly typed field is a 400 that names it."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        path = where.rstrip("`").removesuffix("[...]")  # msgspec does not say which key of a mapping it was
        raise BadRequest(_wrong_type(what), param=path or None, code="invalid_type") from None


def _wrong_type(what: str) -> str:
    words = {
        " | null": "",
        " | ": " or ",
        "`": "",
        "str": "string",
        "float": "number",
        "int": "integer",
        "bool": "boolean",
    }
    for old, new in words.items():
        what = what.replace(old, new)
    return what + "."


def number(name: str, value: float, low: float, high: float) -> float:
    if not math.isfinite(value) or not low <= value <= high:
        raise BadRequest(f"{name!r} must be a number from {low:g} to {high:g}.", param=name)
    return value


def whole(name: str, value: int, low: int, high: int | None = None) -> int:
    if value < low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"from {low} to {high}"
        raise BadRequest(f"{name!r} must be an integer {bounds}.", param=name)
    return value


def sampling(body: Body, defaults: SamplingParams, limits: Limits) -> SamplingParams:
    """How the ids are drawn; `seed` is 0 here and resolved later. top_k of -1 or beyond the vocabulary is off."""
    top_k = whole("top_k", given(body.top_k, defaults.top_k), -1)
    return replace(
        defaults,
        temperature=number("temperature", given(body.temperature, defaults.temperature), 0, 2),
        top_p=number("top_p", given(body.top_p, defaults.top_p), 0, 1),
        top_k=0 if top_k < 0 or top_k >= limits.vocabulary else top_k,
        min_p=number("min_p", given(body.min_p, defaults.min_p), 0, 1),
        presence_penalty=number("presence_penalty", given(body.presence_penalty, defaults.presence_penalty), -2, 2),
        frequency_penalty=number("frequency_penalty", given(body.frequency_penalty, defaults.frequency_penalty), -2, 2),
        repetition_penalty=repetition(given(body.repetition_penalty, defaults.repetition_penalty)),
        logit_bias=biases(given(body.logit_bias, {}), limits.vocabulary),
    )


def repetition(value: float) -> float:
    if not math.isfinite(value) or not 0 < value <= 10:
        raise BadRequest("'repetition_penalty' must be a number above 0, at most 10.", param="repetition_penalty")
    return value


def biases(given_biases: dict[str, float], vocabulary: int) -> tuple[tuple[int, float], ...]:
    """logit_bias with its keys read as ids."""
    pairs: dict[int, float] = {}
    for key, bias in given_biases.items():
        param = f"logit_bias.{key}" if len(key) <= 20 else "logit_bias"
        if not (key.isascii() and key.isdigit() and len(key) <= 20 and int(key) < vocabulary):
            raise BadRequest(f"'logit_bias' keys must be token ids from 0 to {vocabulary - 1}.", param=param)
        if not math.isfinite(bias) or not -100 <= bias <= 100:
            raise BadRequest("'logit_bias' values must be numbers from -100 to 100.", param=param)
        pairs[int(key)] = bias
    return tuple(pairs.items())


def seed(body: Body) -> int | None:
    """The client's seed; None asks for a fresh one. 0 is a seed."""
    if body.seed is msgspec.UNSET or body.seed is None:
        return None
    if not SEED_MIN <= body.seed <= SEED_MAX:
        raise BadRequest("'seed' must be an integer from -2^63 to 2^64 - 1.", param="seed")
    return body.seed


def stops(value: Maybe[str | list[str]]) -> tuple[str, ...]:
    """Stop strings, without repeats."""
    chosen: str | list[str] = [] if value is msgspec.UNSET or value is None else value
    several = [chosen] if isinstance(chosen, str) else chosen
    if len(several) > MOST_STOPS:
        raise BadRequest(f"'stop' may hold at most {MOST_STOPS} strings.", param="stop")
    for index, text in enumerate(several):
        if not text:
            param = "stop" if isinstance(chosen, str) else f"stop[{index}]"
            raise BadRequest("'stop' must not hold an empty string.", param=param)
    return tuple(dict.fromkeys(several))


def answer_limit(body: Body) -> int | None:
    """Most tokens of an answer; None is up to the context. The newer of the two names wins."""
    chosen: int | None = None
    for name in ("max_tokens", "max_completion_tokens"):
        value = getattr(body, name)
        if value is not msgspec.UNSET and value is not None:
            chosen = whole(name, value, 1)
    return chosen


def include_usage(body: Body) -> bool:
    options: dict[str, Any] = given(body.stream_options, {})
    streaming = given(body.stream, False)
    if options and not streaming:
        raise BadRequest("'stream_options' may only be set with 'stream': true.", param="stream_options")
    for name, value in options.items():
        if value is not None and not isinstance(value, bool):
            raise BadRequest("Expected a boolean.", param=f"stream_options.{name}", code="invalid_type")
    return bool(options.get("include_usage"))


def number_of_choices(body: Body, limits: Limits) -> int:
    return whole("n", given(body.n, 1), 1, limits.choices)
