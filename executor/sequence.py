"""One choice of one request while it is generated: the only mutable per-request object. It never leaves the thread.

Runs on the executor thread only.
"""

from dataclasses import dataclass, field
from typing import Any

from .request import Matcher, Request


@dataclass(slots=True, eq=False)
class Sequence:
    """`generated` holds delivered ids; `launched` also counts the draw that is still in flight.

    `slot` is its adapter's number, 0 for the base model; `matcher` follows its grammar, up to the delivered ids.
    """

    request: Request
    choice: int
    generated: list[int] = field(default_factory=list)
    launched: int = 0
    cached_tokens: int = 0
    ended: bool = False
    ended_by: int | None = None
    slot: int = 0
    setbacks: int = 0
    matcher: Matcher | None = None
    mask: Any = None

    @property
    def ids(self) -> list[int]:
        """Prompt and generated ids: what a row must have seen to continue from here."""
        return [*self.request.ids, *self.generated]

    @property
    def fed(self) -> list[int]:
        """The ids whose keys and values the row's caches hold, as far as they have been read back."""
        end = [] if self.ended_by is None else [self.ended_by]
        return [*self.request.ids, *self.generated, *end][: self.fed_count]

    @property
    def fed_count(self) -> int:
        """All of the prompt but its last id, and then one id for each launched draw."""
        return len(self.request.ids) - 1 + self.launched

    @property
    def wants_more(self) -> bool:
        """Whether another draw may still be launched for this row."""
        return not self.ended and self.launched < self.request.max_tokens

    def rewind(self) -> None:
        """Forget the draw in flight: it will be made again, with the same key, hence with the same result."""
        self.launched = len(self.generated)

    def twin(self) -> "Sequence":
        """A copy to try a step with, that leaves this one as it is."""
        twin = Sequence(self.request, self.choice, list(self.generated), len(self.generated), self.cached_tokens)
        twin.slot, twin.matcher = self.slot, self.matcher.copy() if self.matcher else None
        return twin
