"""Memory, before it is spent: what a request will take, and whether that is there. Plain arithmetic, no MLX."""

from collections.abc import Iterable

from .errors import Refused
from .request import Request
from .settings import ModelFacts

EXPECTED_TOKENS = 256  # a limit on the answer is an upper bound, often the whole context; few answers come near it
COME_BACK_S = 2.0


def need(request: Request, facts: ModelFacts) -> int:
    """Bytes: the prompt's caches while it is prefilled, a copy for each choice, and the attention's scratch space."""
    length = len(request.ids) + min(request.max_tokens, EXPECTED_TOKENS)
    row = facts.row_bytes + length * facts.token_bytes
    return row * (1 + request.n) + length * facts.scratch_bytes


def check(request: Request, live: Iterable[Request], facts: ModelFacts, max_rows: int) -> None:
    """Raises Refused: `too_large` for what can never fit, `overloaded` for what does not fit beside the others.

    Of the live requests only as many count as can run at once, the largest of them.
    """
    wanted, room = need(request, facts), facts.memory_bytes - facts.weights_bytes
    if wanted > room:
        raise Refused(
            "too_large", f"this request needs {wanted} bytes of memory, and {max(room, 0)} are available here"
        )
    taken = sum(sorted((need(other, facts) for other in live), reverse=True)[: max(max_rows - 1, 0)])
    if wanted > room - taken:
        message = f"this request needs {wanted} bytes of memory, and {max(room - taken, 0)} are available now"
        raise Refused("overloaded", message, COME_BACK_S)
