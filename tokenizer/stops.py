"""Stop strings, matched on text: nothing of a match is shown, and only what may become one is held back."""

from collections.abc import Sequence


class StopFilter:
    """Passes text through until the first stop string.

    The match that *starts* first wins, so the result does not depend on how the text arrived in pieces;
    of two that start together the shorter wins, because it is complete first.
    """

    __slots__ = ("_held", "_stops", "matched")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(sorted({stop for stop in stops if stop}, key=len))
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The text that can no longer belong to a stop string."""
        if not self._stops:
            return text
        if self.matched is not None:
            return ""
        held = self._held + text
        found, stop = self._first_match(held)
        pending = min((_partial(held, stop) for stop in self._stops), default=len(held))
        if stop is not None and found <= pending:
            return self._end(held[:found], stop)
        self._held = held[pending:]
        return held[:pending]

    def finish(self) -> str:
        """The text held back, now that nothing follows; a match that waited for an earlier one counts."""
        if self.matched is not None:
            return ""
        found, stop = self._first_match(self._held)
        if stop is not None:
            return self._end(self._held[:found], stop)
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str) -> tuple[int, str | None]:
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        return min(found, key=lambda match: match[0]) if found else (-1, None)

    def _end(self, shown: str, stop: str) -> str:
        self.matched, self._held = stop, ""
        return shown


def _partial(text: str, stop: str) -> int:
    """Where the longest end of the text begins that is a proper beginning of the stop; the text's length if none."""
    at = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while at >= 0 and not stop.startswith(text[at:]):
        at = text.find(stop[0], at + 1)
    return at if at >= 0 else len(text)
