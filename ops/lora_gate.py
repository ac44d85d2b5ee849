"""`soloist lora gate`: does the adapter make held-out reference answers likelier than the base does?

The figure is a win rate: the share of prompts whose reference answer has a higher mean token log-likelihood with the
adapter than without. The gate is passed if it reaches the threshold and the mean over all tokens rises too.
MLX runs in this process only, on its main thread.
"""

import hashlib
import json
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..executor.blas import load_blas
from ..tokenizer.tokenizer import Tokenizer
from .lora_prompts import Exam, PromptsError, read_exams
from .lora_store import resolve_adapter
from .model_store import resolve
from .progress import shown

HASHED = ("*.json", "*.safetensors", "*.jinja", "*.model")


@dataclass(frozen=True, slots=True)
class Score:
    """Mean log-likelihood (natural log) per token of one reference answer, without and with the adapter."""

    line: int
    tokens: int
    base: float
    adapter: float

    @property
    def won(self) -> bool:
        return self.adapter > self.base


def gate(base: str, adapter: str, prompts: Path, *, threshold: float, receipt_file: Path | None) -> int:
    """Score, write the receipt, return 0 (passed) or 1. Raises AdapterError, ModelError, PromptsError."""
    with shown() as progress:
        folder, path = resolve(base, progress=progress), resolve_adapter(adapter, progress=progress)
    exams = read_exams(prompts, Tokenizer.load(folder))
    scores = score(folder, path, exams)
    receipt = verdict(scores, threshold) | {
        "base": _hashes(folder),
        "adapter": _hashes(path),
        "prompts": {prompts.name: _sha256(prompts)},
        "versions": {name: version(name) for name in ("soloist", "mlx", "mlx-lm")},
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "scores": [asdict(one) for one in scores],
    }
    text = json.dumps(receipt, indent=2) + "\n"
    if receipt_file is None:
        print(text, end="")
    else:
        receipt_file.write_text(text)
    word = "passed" if receipt["passed"] else "failed"
    print(
        f"gate {word}: {receipt['wins']} of {len(scores)} answers likelier ({receipt['win_rate']:.0%}, needed "
        f"{threshold:.0%}); mean token log-likelihood {receipt['base_mean']:.3f} -> {receipt['adapter_mean']:.3f}",
        file=sys.stderr,
    )
    return 0 if receipt["passed"] else 1


def score(base: Path, adapter: Path, exams: list[Exam]) -> list[Score]:
    """Both log-likelihoods of every answer. Base and adapter run as two rows of one batch."""
    load_blas()
    from ..executor import device, model
    from ..executor.settings import EngineSettings
    from ..lora.bank import AdapterBank

    device.prepare()
    loaded = model.load(EngineSettings(model=base), lambda: None)
    for exam in exams:
        if len(exam.prompt) + len(exam.answer) > loaded.facts.context_length:
            raise PromptsError(f"line {exam.line} of the prompts is longer than the model's context")
    bank = AdapterBank(loaded.network)
    bank.load("candidate", adapter)
    bank.select([bank.slot(None), bank.slot("candidate")])
    return [_score_one(loaded.network, exam) for exam in exams]


def _score_one(network: Any, exam: Exam) -> Score:
    import mlx.core as mx

    ids = mx.array([exam.prompt + exam.answer] * 2)
    logits = network(ids[:, :-1])[:, len(exam.prompt) - 1 :].astype(mx.float32)
    chosen = mx.take_along_axis(logits, ids[:, len(exam.prompt) :, None], axis=-1)[..., 0]
    means = (chosen - mx.logsumexp(logits, axis=-1)).mean(axis=-1)
    mx.eval(means)
    return Score(exam.line, len(exam.answer), means[0].item(), means[1].item())  # type: ignore[arg-type]


def verdict(scores: list[Score], threshold: float) -> dict[str, Any]:
    """The gate's decision and the figures that it rests on."""
    tokens = sum(one.tokens for one in scores)
    base = sum(one.base * one.tokens for one in scores) / tokens
    adapter = sum(one.adapter * one.tokens for one in scores) / tokens
    wins = sum(one.won for one in scores)
    return {
        "passed": wins / len(scores) >= threshold and adapter > base,
        "threshold": threshold,
        "win_rate": wins / len(scores),
        "wins": wins,
        "prompt_count": len(scores),
        "base_mean": base,
        "adapter_mean": adapter,
    }


def _hashes(folder: Path) -> dict[str, str]:
    files = {path for pattern in HASHED for path in folder.glob(pattern) if path.is_file()}
    return {path.name: _sha256(path) for path in sorted(files)}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
