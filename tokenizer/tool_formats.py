"""How a model writes tool calls: mlx-lm's parsers, found from the chat template, plus those that mlx-lm lacks.

The parser modules of `mlx_lm.tool_parsers` need no MLX, but their package would import it: they are loaded by path,
under a name of our own, the first time that a model needs one.
"""

import importlib
import importlib.util
import re
import sys
import types
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from . import deepseek_calls
from .errors import TokenizerError

_HOUSE = "soloist_tool_parsers"
_OWN = {"deepseek": deepseek_calls}


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """start and end enclose a block of calls; an empty end means the end of the answer. parse turns the text between
    them into one call or a list, each a mapping with `name` and `arguments`, and raises when it is none.
    syntax: the parser's source, which names the control tokens that it must be shown."""

    name: str
    start: str
    end: str
    parse: Callable[[str, Any], Any]
    syntax: str


def names() -> list[str]:
    """Every format that can be asked for by name."""
    return sorted({*_OWN, *(file.stem for file in _folder().glob("*.py") if file.stem != "__init__")})


@cache
def load(name: str) -> ToolFormat:
    """A format by its name. Raises TokenizerError for a name that is none."""
    if name not in names():
        raise TokenizerError(f"unknown tool parser {name!r}; known are {', '.join(names())}")
    if name in _OWN:
        module: Any = _OWN[name]
    else:
        if _HOUSE not in sys.modules:
            package = types.ModuleType(_HOUSE)
            package.__path__ = [str(_folder())]
            sys.modules[_HOUSE] = package
        module = importlib.import_module(f"{_HOUSE}.{name}")
    source = Path(module.__file__).read_text(encoding="utf-8").replace("\\", "")
    return ToolFormat(name, module.tool_call_start, module.tool_call_end, module.parse_tool_call, source)


@cache
def _folder() -> Path:
    found = importlib.util.find_spec("mlx_lm")
    if found is None or not found.submodule_search_locations:
        raise TokenizerError("mlx-lm is not installed: its tool parsers are missing")
    return Path(next(iter(found.submodule_search_locations))) / "tool_parsers"


# What a template writes when it shows earlier calls tells the format; the more special comes first.
_SIGNS: tuple[tuple[str, str], ...] = (
    (r"<minimax:tool_call>", "minimax_m2"),
    (r"<\|tool_call>[\s\S]*<tool_call\|>|<tool_call\|>[\s\S]*<\|tool_call>", "gemma4"),
    (r"<start_function_call>", "function_gemma"),
    (r"<longcat_tool_call>", "longcat"),
    (r"<arg_key>", "glm47"),
    (r"<\|tool_list_start\|>|<\|tool_call_start\|>", "pythonic"),
    (r"<tool_call>(?:\\n|\n)<function=", "qwen3_coder"),
    (r"<\|tool_calls_section_begin\|>", "kimi_k2"),
    (r"<｜tool▁calls▁begin｜>", "deepseek"),
    (r'<function name="[\s\S]*<param name="', "minicpm5"),
    (r"\[TOOL_CALLS\]", "mistral"),
    (r"<atem:function_calls>", "muse_spark"),
)
_MARKERS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"), "kimi_k3"),
    (("<|tool_call_start|>", "<|tool_call_end|>"), "pythonic"),
    (("<｜tool▁calls▁begin｜>",), "deepseek"),
)


def detect(templates: Collection[str], added: Collection[str]) -> str:
    """The format that a template or, failing that, a vocabulary speaks of; JSON between `<tool_call>` tags where
    neither says anything, as most models were trained on those."""
    source = "\n".join(templates)
    for sign, name in _SIGNS:
        if re.search(sign, source):
            return name
    if "<tool_call>" not in source:
        for markers, name in _MARKERS:
            if all(marker in added for marker in markers):
                return name
    return "json_tools"


def best_for(body: str, asked: ToolFormat) -> ToolFormat:
    """Models mix up what `<tool_call>` encloses (JSON, `<function=`, `<arg_key>`): the text itself decides."""
    if asked.start != "<tool_call>":
        return asked
    if body.lstrip()[:1] in ("{", "["):
        return load("json_tools")
    if "<function=" in body:
        return load("qwen3_coder")
    return load("glm47") if "<arg_key>" in body else asked
