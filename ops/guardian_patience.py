"""When to act on an instance: after K misses in a row, with growing pauses, and not for ever. Pure: time comes in."""

import math
from collections import deque
from typing import Literal

from .guardian_config import GuardianConfig
from .guardian_verdict import Verdict

Decision = Literal["nothing", "act", "wait", "give_up"]


class Patience:
    """One instance's misses and actions. Times are in seconds of any clock that does not jump."""

    def __init__(self, config: GuardianConfig) -> None:
        self._config = config
        self.misses = 0
        self.red = False
        self._loading_since: float | None = None
        self._well_since: float | None = None
        self._not_before = -math.inf
        self._in_a_row = 0
        self._actions: deque[float] = deque()

    def weigh(self, verdict: Verdict, now: float) -> Verdict:
        """Take a verdict in. Returns it, or `stuck` where loading has taken too long."""
        if verdict.word == "loading":
            self._loading_since = now if self._loading_since is None else self._loading_since
            if now - self._loading_since > self._config.loading_limit:
                verdict = Verdict("stuck", f"still loading after {now - self._loading_since:.0f} s: {verdict.reason}")
        else:
            self._loading_since = None
        self.misses = self.misses + 1 if verdict.miss else 0
        if self.misses >= self._config.misses:
            self.red = True
        elif verdict.word in ("well", "busy"):
            self.red = False
        self._keep_calm(verdict, now)
        return verdict

    def _keep_calm(self, verdict: Verdict, now: float) -> None:
        if verdict.word not in ("well", "busy"):
            self._well_since = None
            return
        self._well_since = now if self._well_since is None else self._well_since
        if now - self._well_since >= self._config.calm:
            self._in_a_row = 0

    def decide(self, now: float) -> Decision:
        """wait: an action is due but the last one is too recent. give_up: there have been too many."""
        if self.misses < self._config.misses:
            return "nothing"
        while self._actions and now - self._actions[0] > self._config.actions_within:
            self._actions.popleft()
        if len(self._actions) >= self._config.max_actions:
            return "give_up"
        return "wait" if now < self._not_before else "act"

    def acted(self, now: float) -> None:
        """The next action needs new misses, and a pause that is twice as long as the last."""
        self._actions.append(now)
        pause = min(self._config.backoff_cap, self._config.backoff * 2.0 ** min(self._in_a_row, 30))
        self._not_before = now + pause
        self._in_a_row += 1
        self.misses = 0
