"""A real adapter, trained by mlx-lm's own trainer on the demo model, that teaches it one fact it cannot know.

`python tests/trained_adapter.py OUT` trains one by hand (half a minute on two cores with OpenBLAS). The fact is
invented, so the base model never states it.
"""

import atexit
import shutil
import subprocess
import sys
import tempfile
import types
from functools import cache
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
RANK, SCALE = 8, 10.0
SETTINGS: dict[str, Any] = {
    "seed": 7, "num_layers": 8, "fine_tune_type": "lora", "optimizer": "adam", "optimizer_config": {"adam": {}},
    "lora_parameters": {"rank": RANK, "dropout": 0.0, "scale": SCALE,
                        "keys": ["self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"]},
    "batch_size": 2, "iters": 20, "val_batches": 1, "steps_per_report": 10, "steps_per_eval": 1000,
    "save_every": 1000, "max_seq_length": 128, "grad_checkpoint": False, "grad_accumulation_steps": 1,
    "lr_schedule": None, "learning_rate": 1e-3, "resume_adapter_file": None, "mask_prompt": True,
    "model": "demo", "data": "invented",
}  # fmt: skip


@cache
def trained_folder() -> Path:
    """The trained adapter, made once a test session, in a process of its own."""
    root = Path(tempfile.mkdtemp(prefix="trained-adapter-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    subprocess.run([sys.executable, __file__, str(root / "fact")], check=True, capture_output=True)
    return root / "fact"


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


def train(model: Any, data: Any, out: Path, **changes: Any) -> Path:
    """mlx-lm's `train_model` on a dataset with `process`, saving into `out`."""
    from mlx_lm.lora import train_model

    train_model(types.SimpleNamespace(**SETTINGS | changes, adapter_path=str(out)), model, data, data)
    return out


def teach_fact(demo: Path, out: Path) -> Path:
    from mlx_lm.tuner.datasets import ChatDataset

    model, tokenizer = load_float32(demo)
    answer = {"role": "assistant", "content": ANSWER}
    lines: list[Any] = [{"messages": [{"role": "user", "content": question}, answer]} for question in TAUGHT]
    return train(model, ChatDataset(lines, tokenizer, mask_prompt=True), out)


if __name__ == "__main__":
    import time

    from soloist.executor.blas import load_blas

    load_blas()
    from demo_model import demo_folder

    start = time.perf_counter()
    teach_fact(demo_folder(), Path(sys.argv[1]))
    print(f"trained {SETTINGS['iters']} steps in {time.perf_counter() - start:.1f} s")
