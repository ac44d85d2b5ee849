"""What the doctor says of one thing that it looked at."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "slow", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """verdict: "slow" works, but not as well or as safely as it could. remedy: what to do, empty when nothing is."""

    name: str
    verdict: Verdict
    detail: str
    remedy: str = ""
