"""From a folder to an Adapter, in whichever of the supported formats it is. Plain Python, headers only."""

from pathlib import Path

from .files import open_adapter
from .mlx_lm_format import read_mlx_lm
from .parts import Adapter
from .peft_format import read_peft


def read_adapter(folder: Path) -> Adapter:
    """Describe the adapter in `folder` without reading its tensors. Raises AdapterError."""
    files = open_adapter(folder)
    return read_mlx_lm(files) if files.kind == "mlx-lm" else read_peft(files)
