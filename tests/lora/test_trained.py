"""An adapter that mlx-lm really trained: beside the base in one batch, and merged into the 4-bit demo model."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from demo_model import demo_folder
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from soloist.lora.bank import AdapterBank
from soloist.lora.merge import merge_adapter
from soloist.ops.lora_gate import Score, score, verdict
from soloist.ops.lora_prompts import read_exams
from soloist.tokenizer.tokenizer import Tokenizer
from trained_adapter import ANSWER, FACT, RANK, SCALE, UNTAUGHT, load_float32, trained_folder

ANSWER_TOKENS = 14


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(demo_folder())


def chat(tokenizer: Tokenizer, question: str) -> list[int]:
    return tokenizer.render([{"role": "user", "content": question}], None, {})


def greedy(model: Any, ids: list[int], rows: int) -> list[list[int]]:
    """The same prompt in every row of one batch."""
    cache = make_prompt_cache(model)
    logits = model(mx.array([ids] * rows), cache=cache)
    drawn: list[list[int]] = [[] for _ in range(rows)]
    for _ in range(ANSWER_TOKENS):
        last = mx.argmax(logits[:, -1], axis=-1)
        for row, id in enumerate(last.tolist()):  # type: ignore[arg-type, var-annotated]
            drawn[row].append(id)
        logits = model(last[:, None], cache=cache)
    return drawn


def text(tokenizer: Tokenizer, ids: list[int]) -> str:
    return b"".join(tokenizer.token_bytes(id) for id in ids if id not in tokenizer.end_ids).decode(errors="replace")


def test_in_one_batch_the_adapter_states_the_fact_and_the_base_does_not(tokenizer: Tokenizer) -> None:
    model, _ = load_float32(demo_folder())
    bank = AdapterBank(model)
    info = bank.load("fact", trained_folder())
    assert (info.format, info.rank, info.factor) == ("mlx-lm lora", RANK, SCALE)
    bank.select([bank.slot(None), bank.slot("fact")])
    for question in UNTAUGHT:
        base, adapted = (text(tokenizer, ids) for ids in greedy(model, chat(tokenizer, question), 2))
        assert FACT not in base
        assert FACT in adapted


def test_merged_into_four_bits_it_keeps_its_strength_and_its_answers(tokenizer: Tokenizer, tmp_path: Path) -> None:
    from mlx_lm.utils import dequantize_model

    model, _ = load_model(demo_folder())
    report = merge_adapter(model, trained_folder())
    assert report.worst is not None and report.worst.off < 0.05
    assert report.effective_scale == pytest.approx(SCALE, rel=0.05)
    model = dequantize_model(model)
    model.set_dtype(mx.float32)
    for question in UNTAUGHT:
        assert FACT in text(tokenizer, greedy(model, chat(tokenizer, question), 1)[0])


def test_the_gate_passes_it_on_the_fact_and_fails_it_on_what_the_base_knows_better(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    lines: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": question}], "answer": ANSWER} for question in UNTAUGHT
    ]
    france = {"role": "user", "content": "What is the capital of France?"}
    lines.append({"messages": [france, {"role": "assistant", "content": "The capital of France is Paris."}]})
    (tmp_path / "prompts.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    scores: list[Score] = score(
        demo_folder(), trained_folder(), read_exams(tmp_path / "prompts.jsonl", tokenizer)
    )  # fmt: skip
    assert [one.won for one in scores] == [True, True, True, False]
    assert verdict(scores, 0.70)["passed"]
    assert not verdict(scores, 0.80)["passed"]
