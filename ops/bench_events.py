"""What comes back from a server, taken apart: data events of a stream, or one JSON body, into an `Outcome`."""

from typing import Any

import orjson

from .bench_plan import Outcome

MOST_OF_AN_ERROR = 300


class Events:
    """Splits a byte stream into the data of its events (WHATWG HTML, section 9.2.6); comments are dropped."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, part: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + part).split(b"\n")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]


class Seen:
    """One request's answer so far."""

    def __init__(self, sent_s: float) -> None:
        self.sent_s = sent_s
        self.status = 0
        self.arrivals: list[float] = []
        self.left = False
        self.error: str | None = None
        self._text: list[str] = []
        self._finish: str | None = None
        self._usage: dict[str, Any] = {}

    def take(self, data: bytes, now: float) -> bool:
        """One data event. Returns whether it carried text."""
        if data == b"[DONE]":
            return False
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            self.error = f"an event that is no JSON: {data[:80]!r}"
            return False
        return self._take(chunk, now)

    def take_whole(self, body: bytes, now: float) -> None:
        """A body that is no stream: an answer in one piece, or an error."""
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError:
            answer = None
        if self.status != 200 or not isinstance(answer, dict):
            self.error = f"status {self.status}: {body[:MOST_OF_AN_ERROR].decode(errors='replace')}"
        if isinstance(answer, dict):
            self._take(answer, now)

    def _take(self, chunk: dict[str, Any], now: float) -> bool:
        if "error" in chunk:
            self.error = self.error or orjson.dumps(chunk["error"])[:MOST_OF_AN_ERROR].decode(errors="replace")
        self._usage = chunk.get("usage") or self._usage
        choices = chunk.get("choices") or ()
        texts = [_text(choice) for choice in choices]
        self._finish = next((c["finish_reason"] for c in choices if c.get("finish_reason")), self._finish)
        if not any(texts):
            return False
        self._text += texts
        self.arrivals.append(now)
        return True

    def outcome(self, ended_s: float) -> Outcome:
        details = self._usage.get("prompt_tokens_details") or {}
        return Outcome(
            status=self.status,
            sent_s=self.sent_s,
            ended_s=ended_s,
            arrivals_s=tuple(self.arrivals),
            text="".join(self._text),
            finish=self._finish,
            prompt_tokens=self._usage.get("prompt_tokens"),
            completion_tokens=self._usage.get("completion_tokens"),
            cached_tokens=details.get("cached_tokens"),
            left=self.left,
            error=self.error,
        )


def _text(choice: dict[str, Any]) -> str:
    part = choice.get("delta") or choice.get("message") or choice
    return "".join(part.get(name) or "" for name in ("reasoning_content", "reasoning", "content", "text"))
