"""The door for conversations: the shapes of messages and tools, each fault named by its path.

What passes goes to the tokenizer as it came; parts of content and arguments of calls are read, and refused, there.
"""

from typing import Any

from .errors import BadRequest

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MOST_PARTS = 1024  # of one message's content
_TEXTS = ("name", "tool_call_id", "reasoning_content", "reasoning", "refusal")


def check_messages(messages: list[dict[str, Any]]) -> int:
    """Returns how many characters they hold. Raises BadRequest with a param such as `messages[0].content`."""
    if not messages:
        raise BadRequest("'messages' must hold at least one message.", param="messages")
    for index, message in enumerate(messages):
        _check_message(message, f"messages[{index}]")
    return sum(_length(message.get("content")) for message in messages)


def _length(content: Any) -> int:
    if isinstance(content, list):
        return sum(_length(part.get("text")) for part in content if isinstance(part, dict))
    return len(content) if isinstance(content, str) else 0


def _check_message(message: dict[str, Any], at: str) -> None:
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise BadRequest(f"A message needs a 'role': one of {', '.join(ROLES)}.", param=f"{at}.role")
    if content is None and role != "assistant":
        raise BadRequest(f"A message of role {role!r} needs a 'content'.", param=f"{at}.content")
    if isinstance(content, list) and len(content) > MOST_PARTS:
        raise BadRequest(f"'content' may hold at most {MOST_PARTS} parts.", param=f"{at}.content")
    if not isinstance(content, str | list | None):
        raise BadRequest("'content' must be a string or a list of parts.", param=f"{at}.content", code="invalid_type")
    for name in _TEXTS:
        if not isinstance(message.get(name), str | None):
            raise BadRequest("Expected a string.", param=f"{at}.{name}", code="invalid_type")
    _check_calls(message.get("tool_calls"), f"{at}.tool_calls")
    if not isinstance(message.get("function_call"), dict | None):
        raise BadRequest("Expected an object.", param=f"{at}.function_call", code="invalid_type")


def _check_calls(calls: Any, at: str) -> None:
    if not isinstance(calls, list | None):
        raise BadRequest("'tool_calls' must be a list.", param=at, code="invalid_type")
    for index, call in enumerate(calls or []):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            raise BadRequest("A tool call needs a 'function' with a 'name'.", param=f"{at}[{index}]")
        if not isinstance(function.get("arguments"), str | dict | None):
            at_arguments = f"{at}[{index}].function.arguments"
            raise BadRequest("'arguments' must be JSON text.", param=at_arguments, code="invalid_type")


def check_tools(tools: list[dict[str, Any]], choice: str | dict[str, Any] | None) -> list[dict[str, Any]] | None:
    """The tools that the template shows, or None: none were given, or `tool_choice` is none.

    Whether a choice can be met is for the grammar to say.
    """
    for index, tool in enumerate(tools):
        _check_tool(tool, f"tools[{index}]")
    if choice not in (None, "none", "auto", "required") and not _names_function(choice):
        message = "'tool_choice' must be 'none', 'auto', 'required', or an object that names a function."
        raise BadRequest(message, param="tool_choice")
    return None if choice == "none" or not tools else tools


def _names_function(choice: Any) -> bool:
    function = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


_MEMBERS = (("description", str, "a string"), ("parameters", dict, "an object"), ("strict", bool, "a boolean"))


def _check_tool(tool: dict[str, Any], at: str) -> None:
    if tool.get("type") != "function":
        raise BadRequest("Only tools of type 'function' are supported.", param=f"{at}.type")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise BadRequest("A tool needs a 'function' object.", param=f"{at}.function", code="invalid_type")
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise BadRequest("A function needs a name.", param=f"{at}.function.name")
    for name, kind, word in _MEMBERS:
        if not isinstance(function.get(name), kind | None):
            raise BadRequest(f"Expected {word}.", param=f"{at}.function.{name}", code="invalid_type")
