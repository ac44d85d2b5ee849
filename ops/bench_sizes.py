"""How long each measurement of the bench is. Lengths are tokens, times are seconds."""

from dataclasses import dataclass

LEVELS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Sizes:
    """rounds: how often each server is measured, in turn. levels: numbers of concurrent streams, out of LEVELS.

    short: prompt of a plain stream. settle: tokens that running streams get before something joins them.
    leave_after_s: when the client leaves during the prefill. idle_s: how long a disk tier must be quiet.
    """

    rounds: int = 3
    levels: tuple[int, ...] = LEVELS
    seeded_levels: tuple[int, ...] = LEVELS
    decode_tokens: int = 64
    stream_tokens: int = 48
    short: int = 16
    prefix: int = 1000
    suffix: int = 8
    settle: int = 16
    join_prompt: int = 1000
    join4_prompt: int = 4000
    abandoned_prompt: int = 1500
    next_prompt: int = 200
    leave_after_s: float = 1.5
    health_tokens: int = 48
    idle_s: float = 1.0
    flood_streams: int = 64
    flood_tokens: int = 2000


FULL = Sizes()
QUICK = Sizes(
    rounds=1,
    levels=(1, 8),
    seeded_levels=(8,),
    decode_tokens=16,
    stream_tokens=20,
    prefix=200,
    settle=8,
    join_prompt=200,
    join4_prompt=400,
    abandoned_prompt=400,
    next_prompt=60,
    leave_after_s=0.5,
    health_tokens=10,
    idle_s=0.5,
    flood_tokens=600,
)
