"""Why an adapter is refused. Plain Python, no MLX.

AdapterError            anything below; `keys` names the offending tensors or fields, the first ones first
+- FormatError          the folder is not an adapter that we read: files missing, damaged, or of another kind
+- ScaleError           the configuration does not say one factor, or says two
+- MisfitError          the tensors and the model do not belong together
+- ServingError         fits, but cannot be applied row by row (merging it may still be possible)
+- StrengthError        merged, its measured strength is too far from the trained one
+- UnknownAdapter       no adapter of this name is loaded
"""

from collections.abc import Sequence

SHOWN = 4


class AdapterError(Exception):
    """An adapter is refused; the message is meant for the person who gave it to us."""

    def __init__(self, message: str, keys: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.keys = tuple(keys)


class FormatError(AdapterError):
    """The folder does not hold an adapter in a format that we read."""


class ScaleError(AdapterError):
    """The factor of B A is ambiguous, missing, or contradicted by the tensors."""


class MisfitError(AdapterError):
    """A tensor matches no module of the model, lacks its other half, or has a shape that does not fit."""


class ServingError(AdapterError):
    """This adapter cannot be applied to single rows of a batch."""


class StrengthError(AdapterError):
    """The merged weights do not carry the trained change at its trained strength."""


class UnknownAdapter(AdapterError):
    """No adapter is loaded under this name."""


def listing(lines: Sequence[str]) -> str:
    """The first few lines, and how many more there are."""
    more = f"; and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return "; ".join(lines[:SHOWN]) + more
