"""Tiny base models, and asking one for the log-probabilities of a fixed prompt."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fast_blas  # noqa: F401  (sorts before mlx, as it must)
import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model, save_config
from safetensors.numpy import save_file
from tiny_models import LLAMA, random_model

BIASED = LLAMA | {"attention_bias": True, "mlp_bias": True, "num_hidden_layers": 2}
TIED = LLAMA | {"tie_word_embeddings": True, "num_hidden_layers": 2}
MIXTURE = LLAMA | {
    "model_type": "mixtral", "num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip
CONFIGS = {"llama": LLAMA, "biased": BIASED, "tied": TIED, "mixture": MIXTURE}
IDS = [10, 200, 31, 44, 5, 67, 99]


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders of the tiny models by name; "llama4" is the llama quantised to 4 bits in groups of 32."""
    root = tmp_path_factory.mktemp("bases")

    def base(name: str) -> Path:
        folder = root / name
        if not folder.exists():
            if name.endswith("4"):
                _quantised(base(name[:-1]), folder)
            else:
                random_model(folder, CONFIGS[name], scale=0.15)
        return folder

    return base


def _quantised(source: Path, folder: Path) -> None:
    model, config = load_model(source)
    nn.quantize(model, group_size=32, bits=4)
    mx.eval(model.parameters())
    shutil.copytree(source, folder)
    mx.save_safetensors(
        str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), metadata={"format": "mlx"}
    )
    save_config(config | {"quantization": {"group_size": 32, "bits": 4, "mode": "affine"}}, folder / "config.json")


def logprobs(model: Any, rows: int = 1) -> Any:
    """Log-probabilities (rows, tokens, vocabulary) of the fixed prompt, as NumPy."""
    logits = model(mx.array([IDS] * rows)).astype(mx.float32)
    return np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))


def reference(base: Path, weights: dict[str, Any], folder: Path) -> Any:
    """Log-probabilities of a model with these very weights, loaded from a file as any model is."""
    shutil.copytree(base, folder, dirs_exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "mlx"})
    return logprobs(load_model(folder)[0])
