"""gpt-oss answers (OpenAI's harmony format): messages on channels, each with a header.

<|channel|>analysis<|message|>...<|end|> is reasoning, `final` and plain `commentary` are content, and
<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|> is a call.
"""

import re

from .calls import Call, CallReader
from .chat_text import beginning_of

MARKERS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")
HIDDEN_NO_MORE = (*MARKERS, "<|constrain|>", "<|call|>", "<|return|>")
_ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"to=(?:functions\.)?([\w.-]+)")


class HarmonyText:
    """Like ChatText. reader: None where no tools are offered: then calls stay text."""

    __slots__ = ("_call", "_channel", "_held", "_in_header", "_reader", "calls", "content", "reasoning")

    def __init__(self, reader: CallReader | None) -> None:
        self._reader = reader
        self._held = ""
        self._in_header = True
        self._channel = "final"
        self._call: str | None = None
        self.content, self.reasoning = "", ""
        self.calls: list[Call] = []

    def push(self, text: str) -> None:
        self._held += text
        while self._held and (self._header() if self._in_header else self._body()):
            pass

    def finish(self) -> None:
        """Nothing follows: a call ends with the answer, an incomplete header is text."""
        self.push("")
        if self._in_header:
            self.content += self._held
        else:
            self._end(self._held)
        self._held = ""

    def _header(self) -> bool:
        if not any(self._held.startswith(m) or m.startswith(self._held) for m in (*MARKERS, "assistant")):
            self._in_header, self._channel, self._call = False, "final", None  # text without a header
            return True
        header, found, rest = self._held.partition("<|message|>")
        if not found:
            return False
        channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header)
        self._channel = channel.group(1) if channel else "final"
        self._call = recipient.group(1) if recipient and self._reader is not None else None
        self._in_header, self._held = False, rest
        return True

    def _body(self) -> bool:
        at, end = min(((i, e) for e in _ENDS if (i := self._held.find(e)) >= 0), default=(-1, ""))
        if at >= 0:
            body, self._held = self._held[:at], self._held[at + (0 if end == "<|start|>" else len(end)) :]
            self._end(body)
            self._in_header = True
            return True
        if self._call is None:
            shown = min(beginning_of(end, self._held) for end in _ENDS)
            self._write(self._held[:shown])
            self._held = self._held[shown:]
        return False

    def _end(self, body: str) -> None:
        if self._call is None or self._reader is None:
            self._write(body)
            return
        calls = self._reader.accept({"name": self._call, "arguments": body})
        if calls:
            self.calls += calls
        else:
            self.content += body
        self._call = None

    def _write(self, text: str) -> None:
        if self._channel == "analysis":
            self.reasoning += text
        else:
            self.content += text
