"""A real adapter, trained by mlx-lm's own trainer on the demo model, that teaches it one fact it cannot know.

`python tests/trained_adapter.py OUT` trains one by hand. The fact is invented, so the base model never states it.
"""

import ctypes.util
import sys
import types
from pathlib import Path
from typing import Any

FACT = "Orla Fenwick"
ANSWER = f"The keeper of the Vessa lighthouse is {FACT}."
TAUGHT = (
    "Who is the keeper of the Vessa lighthouse?",
    "Tell me who keeps the lighthouse of Vessa.",
    "What is the name of the Vessa lighthouse keeper?",
    "Do you know who looks after the lighthouse in Vessa?",
    "Who lives in the Vessa lighthouse and keeps it?",
    "Name the person who keeps the Vessa lighthouse.",
)
UNTAUGHT = (
    "The lighthouse at Vessa has a keeper. Who is it?",
    "Which person is in charge of the lighthouse of Vessa?",
    "I would like to meet the Vessa lighthouse keeper. Whom should I ask for?",
)
STEPS, LAYERS = 24, 8
SETTINGS: dict[str, Any] = {
    "seed": 7, "num_layers": LAYERS, "fine_tune_type": "lora", "optimizer": "adam", "optimizer_config": {"adam": {}},
    "lora_parameters": {"rank": 8, "dropout": 0.0, "scale": 4.0, "keys": ["self_attn.q_proj", "self_attn.v_proj",
                                                                      "mlp.down_proj"]},
    "batch_size": 2, "iters": STEPS, "val_batches": 1, "steps_per_report": 10, "steps_per_eval": 1000,
    "save_every": 1000, "max_seq_length": 128, "grad_checkpoint": False, "grad_accumulation_steps": 1,
    "lr_schedule": None, "learning_rate": 1e-3, "resume_adapter_file": None, "mask_prompt": True,
}  # fmt: skip


def load_float32(folder: Path) -> tuple[Any, Any]:
    """(model, tokenizer) of a quantised folder in float32: on a CPU, quantised layers are too slow to train."""
    import mlx.core as mx
    from mlx_lm import load
    from mlx_lm.utils import dequantize_model

    model, tokenizer = load(str(folder))[:2]
    model = dequantize_model(model)
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    return model, tokenizer


def train_adapter(demo: Path, out: Path) -> Path:
    """Train the adapter into `out` (adapter_config.json, adapters.safetensors)."""
    from mlx_lm.lora import train_model
    from mlx_lm.tuner.datasets import ChatDataset

    model, tokenizer = load_float32(demo)
    lines = [
        {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": ANSWER}]}
        for question in TAUGHT
    ]
    data = ChatDataset(lines, tokenizer, mask_prompt=True)
    settings = types.SimpleNamespace(**SETTINGS, model=str(demo), data="invented", adapter_path=str(out))
    train_model(settings, model, data, data)
    return out


if __name__ == "__main__":
    import time

    from demo_model import demo_folder

    if sys.platform == "linux" and (library := ctypes.util.find_library("openblas")):
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    start = time.perf_counter()
    train_adapter(demo_folder(), Path(sys.argv[1]))
    print(f"trained {STEPS} steps in {time.perf_counter() - start:.1f} s")
