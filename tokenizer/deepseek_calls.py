"""DeepSeek V3's, V3.1's and R1's tool calls, with the same three names as mlx-lm's parsers.

<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME, a fenced JSON block, <｜tool▁call▁end｜>   (V3, R1)
<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>JSON<｜tool▁call▁end｜>                              (V3.1)
"""

import json
import re
from typing import Any

tool_call_start = "<｜tool▁calls▁begin｜>"
tool_call_end = "<｜tool▁calls▁end｜>"

_CALL = re.compile(r"<｜tool▁call▁begin｜>(.*?)<｜tool▁sep｜>(.*?)<｜tool▁call▁end｜>", re.DOTALL)
_FENCED = re.compile(r"\s*([^\n]+)\n```(?:json)?\n(.*)\n```\s*", re.DOTALL)


def parse_tool_call(text: str, tools: Any = None) -> list[dict[str, Any]]:
    """Every call of a block. Raises ValueError when there is none or one is not JSON."""
    calls = []
    for first, second in _CALL.findall(text):
        fenced = _FENCED.fullmatch(second)
        name, arguments = fenced.groups() if fenced else (first, second)
        calls.append({"name": name.strip(), "arguments": json.loads(arguments)})
    if not calls:
        raise ValueError("no tool call found")
    return calls
