"""How one model writes its answers: the marks of its reasoning, the format of its calls, and what must be visible."""

from collections.abc import Collection, Mapping
from typing import Any

from . import tool_formats
from .calls import CallReader
from .chat_text import ChatText
from .grammar import Writing
from .harmony import HIDDEN_NO_MORE, MARKERS, HarmonyText
from .output import Parts
from .reasoning import marks


class Answers:
    """Decided once for a model. added: text to id of every added token.

    tool_parser: a format by name, or None to find it. The parser itself is loaded when first needed.
    """

    __slots__ = ("_added", "_harmony", "_marks", "_reasons", "tool_parser")

    def __init__(self, templates: Collection[str], added: Mapping[str, int], tool_parser: str | None) -> None:
        """Raises TokenizerError for an unknown tool_parser."""
        self._added = added
        self._harmony = all(marker in added for marker in MARKERS)
        self._marks = marks(templates, added.keys())
        self._reasons = any(self._marks.start in source for source in (*templates, *added))
        self.tool_parser = tool_parser or tool_formats.detect(templates, added.keys())
        if tool_parser is not None:
            tool_formats.load(tool_parser)

    def parts(self, tools: list[dict[str, Any]] | None, prompt: str) -> tuple[Parts, set[int]]:
        """A fresh reader of one answer, and the ids of control tokens that it must see as text."""
        reader = CallReader(tool_formats.load(self.tool_parser), tools) if tools else None
        if self._harmony:
            return HarmonyText(reader), self._ids(HIDDEN_NO_MORE)
        seen = [text for text in self._added if text in self._marks.start or text in self._marks.end]
        if reader is not None:
            seen += [text for text in self._added if text in reader.format.syntax]
        return ChatText(self._marks, opened=self._opened(prompt), reader=reader), self._ids(seen)

    def writing(self, prompt: str, special: Collection[int]) -> Writing:
        """What a grammar must know. special: ids that are no text."""
        format = None if self._harmony else tool_formats.load(self.tool_parser)
        ids = {text: id for text, id in self._added.items() if id in special}
        return Writing(format, self._marks, self._opened(prompt), ids, self._reasons)

    @property
    def reasoning_end(self) -> tuple[str, int | None]:
        """The mark, and its id if it is one token by design."""
        return self._marks.end, self._added.get(self._marks.end)

    def _opened(self, prompt: str) -> bool:
        return prompt.rstrip().endswith(self._marks.start)

    def _ids(self, texts: Collection[str]) -> set[int]:
        return {self._added[text] for text in texts if text in self._added}
