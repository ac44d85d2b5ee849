"""The door for conversations: the shapes of messages, content parts and tools, each fault named by its path.

What passes is handed to the template as it came, but that text parts are joined and a null or absent content of an
assistant turn is the empty string, so that the word None can never be rendered.
"""

from typing import Any

from .errors import BadRequest

ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def check_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with plain text as content. Raises BadRequest with a param such as `messages[0].content[1]`."""
    if not messages:
        raise BadRequest("'messages' must hold at least one message.", param="messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: dict[str, Any], at: str) -> dict[str, Any]:
    role = message.get("role")
    if role not in ROLES:
        raise BadRequest(f"A message needs a 'role': one of {', '.join(ROLES)}.", param=f"{at}.role")
    checked = {name: value for name, value in message.items() if value is not None}
    for name in ("name", "tool_call_id", "reasoning_content", "reasoning", "refusal"):
        if not isinstance(checked.get(name, ""), str):
            raise BadRequest("Expected a string.", param=f"{at}.{name}", code="invalid_type")
    if role == "assistant":
        checked["content"] = _content(checked.get("content", ""), f"{at}.content")
        if "tool_calls" in checked:
            _calls(checked["tool_calls"], f"{at}.tool_calls")
            if not checked["tool_calls"]:
                del checked["tool_calls"]
        if "function_call" in checked:
            raise BadRequest("Use 'tool_calls' instead of 'function_call'.", param=f"{at}.function_call")
    elif "content" not in checked:
        raise BadRequest(f"A message of role {role!r} needs a 'content'.", param=f"{at}.content")
    else:
        checked["content"] = _content(checked["content"], f"{at}.content")
    return checked


def _content(content: Any, at: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadRequest("'content' must be a string or a list of parts.", param=at, code="invalid_type")
    return "".join(_part(part, f"{at}[{index}]") for index, part in enumerate(content))


def _part(part: Any, at: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind is None:
        raise BadRequest("A content part must be an object with a 'type'.", param=at, code="invalid_type")
    if kind != "text":
        raise BadRequest(f"This model reads text only: a part of type {str(kind)[:40]!r} cannot be served.", param=at)
    if not isinstance(part.get("text"), str):
        raise BadRequest("A text part needs a 'text' that is a string.", param=f"{at}.text", code="invalid_type")
    return str(part["text"])


def _calls(calls: Any, at: str) -> None:
    if not isinstance(calls, list):
        raise BadRequest("'tool_calls' must be a list.", param=at, code="invalid_type")
    for index, call in enumerate(calls):
        here = f"{at}[{index}]"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise BadRequest("A tool call needs a 'function' object.", param=here, code="invalid_type")
        if not isinstance(function.get("name"), str) or not function["name"]:
            raise BadRequest("A tool call needs the name of its function.", param=f"{here}.function.name")
        if not isinstance(function.get("arguments", ""), str | dict | None):
            raise BadRequest("'arguments' must be JSON text.", param=f"{here}.function.arguments", code="invalid_type")


def check_tools(tools: list[dict[str, Any]], choice: str | dict[str, Any] | None) -> list[dict[str, Any]] | None:
    """The tools that the template shows, or None: none were given, or `tool_choice` is none."""
    for index, tool in enumerate(tools):
        _tool(tool, f"tools[{index}]")
    if isinstance(choice, dict) or choice not in (None, "none", "auto", "required"):
        named = isinstance(choice, dict) and choice.get("type") == "function"
        code = "unsupported_parameter" if named else "invalid_value"
        raise BadRequest("'tool_choice' must be 'none' or 'auto' on this server.", param="tool_choice", code=code)
    if choice == "required":
        raise BadRequest(
            "'tool_choice': 'required' is not supported.", param="tool_choice", code="unsupported_parameter"
        )
    return None if choice == "none" or not tools else tools


def _tool(tool: dict[str, Any], at: str) -> None:
    if tool.get("type") != "function":
        raise BadRequest("Only tools of type 'function' are supported.", param=f"{at}.type")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise BadRequest("A tool needs a 'function' object.", param=f"{at}.function", code="invalid_type")
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise BadRequest("A function needs a name.", param=f"{at}.function.name")
    for name, kind, word in (
        ("description", str, "a string"),
        ("parameters", dict, "an object"),
        ("strict", bool, "a boolean"),
    ):
        if not isinstance(function.get(name), kind | None):
            raise BadRequest(f"Expected {word}.", param=f"{at}.function.{name}", code="invalid_type")
