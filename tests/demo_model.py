"""The demo model for every test that needs a real one: pulled into the user's own cache, so once a machine."""

from functools import cache
from pathlib import Path

from soloist.ops.demo_model import pull


@cache
def demo_folder() -> Path:
    """The imported demo model's folder (mlx-lm layout). About three seconds the first time ever, then instant."""
    return pull()
