"""OpenAI's messages as chat templates expect them.

Content parts are joined without inventing characters; null and absent content are the empty string; arguments, which
OpenAI sends as JSON text, become the mapping that templates iterate, one that still prints as its text.
"""

import json
from collections.abc import Callable
from typing import Any

from .errors import TemplateError

# Fields of OpenAI's response messages that clients send back and that no template knows.
_ECHOES = frozenset({"refusal", "annotations", "audio", "function_call"})
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


class Arguments(dict[Any, Any]):
    """A call's arguments: a mapping for templates that iterate it, JSON text for those that print it."""

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)

    __repr__ = __str__


def prepare(messages: list[dict[str, Any]], *, developer: bool, textual: bool = False) -> list[dict[str, Any]]:
    """Copies of the messages for one rendering.

    developer: whether the template knows that role; else it becomes `system`. textual: arguments stay JSON text.
    Raises TemplateError naming the message, part or call at fault.
    """
    names: dict[str, str] = {}
    return [_message(m, f"messages[{i}]", developer, textual, names) for i, m in enumerate(messages)]


def _message(
    message: dict[str, Any], param: str, developer: bool, textual: bool, names: dict[str, str]
) -> dict[str, Any]:
    ready = {k: v for k, v in message.items() if v is not None and k not in _ECHOES}
    role = ready.get("role")
    if "content" not in ready and role in ("system", "developer", "user"):
        raise TemplateError("content must be a string or a list of parts", f"{param}.content")
    ready["content"] = text_of(message.get("content"), param)
    if role == "developer" and not developer:
        ready["role"] = "system"
    elif role == "function":
        ready["role"] = "tool"
    calls = ready.pop("tool_calls", None) or []
    legacy = message.get("function_call")
    if legacy and not calls:
        calls = [{"type": "function", "function": legacy}]
    if calls:
        ready["tool_calls"] = [_call(c, f"{param}.tool_calls[{j}]", textual, names) for j, c in enumerate(calls)]
    if ready["role"] == "tool" and "name" not in ready and ready.get("tool_call_id") in names:
        ready["name"] = names[ready["tool_call_id"]]
    if isinstance(ready.get("reasoning"), str):
        ready.setdefault("reasoning_content", ready["reasoning"])
    return ready


def text_of(content: Any, param: str) -> str:
    """The text of a message's content. Raises TemplateError naming the part that is no text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise TemplateError("content must be a string or a list of parts", f"{param}.content")
    return "".join(_part(part, f"{param}.content[{i}]") for i, part in enumerate(content))


def _part(part: Any, param: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get(_TEXT_PARTS[kind]) if kind in _TEXT_PARTS else None
    if not isinstance(text, str):
        raise TemplateError("this model reads text only: a content part must be of type text", param)
    return text


def _call(call: Any, param: str, textual: bool, names: dict[str, str]) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise TemplateError("a tool call needs a function with a name", param)
    if isinstance(call.get("id"), str):
        names[call["id"]] = function["name"]
    spell: Callable[[Any], Any] = _as_text if textual else _as_mapping
    arguments = spell(function.get("arguments"))
    return {**call, "type": "function", "function": {**function, "arguments": arguments}}


def _as_mapping(arguments: Any) -> Any:
    """The mapping that the arguments stand for; text that is no JSON object stays as it is."""
    if isinstance(arguments, dict):
        return Arguments(arguments)
    if arguments is None or (isinstance(arguments, str) and arguments.strip() in ("", "null")):
        return Arguments()
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return Arguments(value) if isinstance(value, dict) else arguments


def _as_text(arguments: Any) -> str:
    if isinstance(arguments, str) and arguments.strip() not in ("", "null"):
        return arguments
    return json.dumps(arguments or {}, ensure_ascii=False) if not isinstance(arguments, str) else "{}"


def broken_call(messages: list[dict[str, Any]]) -> str | None:
    """Where the first call is whose arguments are no JSON object, so that a refusal can name it."""
    for i, message in enumerate(messages):
        for j, call in enumerate(message.get("tool_calls") or []):
            if not isinstance(_as_mapping(call.get("function", {}).get("arguments")), dict):
                return f"messages[{i}].tool_calls[{j}]"
    return None
