"""A float32 copy of a model folder, for servers that would otherwise run half or quantised kernels on the CPU backend.

Those are scalar there and dozens of times slower. Run as a module: source folder, target folder. Imports MLX.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from ..executor.blas import load_blas
from .bench_child import PACKAGE

TEXT_FILES = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "generation_config.json",
    "chat_template.jinja", "added_tokens.json",
)  # fmt: skip


def float32_copy(source: Path, target: Path) -> Path:
    """In a process of its own. Returns the folder to serve: the source itself where MLX has a GPU."""
    command = [sys.executable, "-m", f"{PACKAGE}.ops.bench_float32", str(source), str(target)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return target if (target / "config.json").exists() else source


def write(source: Path, target: Path) -> None:
    """Writes nothing where MLX has a GPU."""
    load_blas()
    import mlx.core as mx
    from mlx.utils import tree_flatten

    from .bench_bare import load_network

    if mx.default_device() != mx.Device(mx.cpu):
        return
    target.mkdir(parents=True, exist_ok=True)
    weights = dict(tree_flatten(load_network(source).parameters()))
    mx.save_safetensors(str(target / "model.safetensors"), weights, metadata={"format": "mlx"})
    for name in TEXT_FILES:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    plain = {key: value for key, value in config.items() if key not in ("quantization", "quantization_config")}
    (target / "config.json").write_text(json.dumps(plain | {"torch_dtype": "float32"}), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
