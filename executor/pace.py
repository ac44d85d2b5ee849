"""How many prompt ids are fed at once: by time, measured as it goes, because speeds differ by a thousand.

Plain Python. Runs on the executor thread only.
"""


class Pace:
    """Sizes of prefill chunks, in ids.

    With rows in decode, a chunk lengthens the gap between two of their tokens by its own duration: one as long as a
    decode step at most doubles it. Alone, a chunk still bounds how soon a cancellation or a newcomer is noticed.
    """

    SMALLEST = 8
    FIRST_GUESS = 64
    ALONE_S = 0.3

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._step_s: float | None = None
        self._tokens_per_s: float | None = None

    def stepped(self, seconds: float) -> None:
        """A decode step that had no chunk beside it took this long."""
        self._step_s = seconds if self._step_s is None else 0.8 * self._step_s + 0.2 * seconds

    def prefilled(self, tokens: int, seconds: float) -> None:
        if tokens >= self.SMALLEST and seconds > 0:
            rate = tokens / seconds
            self._tokens_per_s = rate if self._tokens_per_s is None else 0.7 * self._tokens_per_s + 0.3 * rate

    def chunk(self, *, alone: bool) -> int:
        """Ids to feed next. `alone`: no row is decoding."""
        span = self.ALONE_S if alone else self._step_s
        if span is None or self._tokens_per_s is None:
            return min(self.FIRST_GUESS if alone else self.FIRST_GUESS // 2, self.largest)
        wanted = int(span * self._tokens_per_s)
        return min(max(wanted, self.SMALLEST), self.largest)
