"""The four forms of a completions prompt: a string, strings, ids, or lists of ids. Each becomes id tuples."""

from typing import Any

from msgspec import UNSET

from ..tokenizer.tokenizer import Tokenizer
from .errors import BadRequest
from .job import Ids
from .validate import Limits


def read_prompts(value: Any, tokenizer: Tokenizer, limits: Limits) -> tuple[Ids, ...]:
    """Text gets the tokenizer's BOS, and its control tokens are parsed; ids are taken as they are."""
    if value is UNSET or value is None:
        raise BadRequest("'prompt' is required.", param="prompt", code="missing_required_parameter")
    if isinstance(value, str):
        return (_text(value, tokenizer, limits, "prompt"),)
    if len(value) > limits.prompts and not isinstance(value[0], int):
        raise BadRequest(f"'prompt' may hold at most {limits.prompts} prompts.", param="prompt")
    if not value:
        raise BadRequest("'prompt' must not be an empty list.", param="prompt")
    if all(isinstance(item, str) for item in value):
        return tuple(_text(item, tokenizer, limits, f"prompt[{index}]") for index, item in enumerate(value))
    if all(isinstance(item, list) for item in value):
        return tuple(_ids(item, limits.vocabulary, f"prompt[{index}]") for index, item in enumerate(value))
    return (_ids(value, limits.vocabulary, "prompt"),)


def _text(text: str, tokenizer: Tokenizer, limits: Limits, at: str) -> Ids:
    limits.check_length(len(text), at)
    ids = tuple(tokenizer.encode(text, specials=True))
    if not ids:
        raise BadRequest("The prompt is empty, and this model has no token to begin with.", param=at)
    return ids


def _ids(items: list[Any], vocabulary: int, at: str) -> Ids:
    if not items:
        raise BadRequest("A prompt of token ids must hold at least one id.", param=at)
    for index, item in enumerate(items):
        if type(item) is not int:
            message = "A prompt must be a string, a list of strings, a list of token ids, or a list of such lists."
            raise BadRequest(message, param=f"{at}[{index}]", code="invalid_type")
        if not 0 <= item < vocabulary:
            raise BadRequest(f"Token ids must be from 0 to {vocabulary - 1}.", param=f"{at}[{index}]")
    return tuple(items)
