"""The imported demo model against two authorities: gguf's own dequantiser, bit for bit, and llama.cpp's answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import jinja2
import numpy as np
import pytest
from demo_model import demo_folder, demo_gguf
from soloist.executor.blas import load_blas
from tokenizers import Tokenizer

load_blas()  # before mlx

import mlx.core as mx  # noqa: E402
from mlx_lm.models.cache import make_prompt_cache  # noqa: E402
from mlx_lm.utils import dequantize_model, load_model  # noqa: E402
from soloist.ops import gguf_import  # noqa: E402
from soloist.ops.gguf_file import GgufFile  # noqa: E402
from soloist.ops.gguf_llama import target_name  # noqa: E402

REFERENCE = json.loads((Path(__file__).parent / "data" / "smollm2_llama_cpp.json").read_text())["cases"]
PARIS = REFERENCE[0]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo_gguf(tmp_path_factory.mktemp("gguf"))


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    yield loaded(demo_folder())
    mx.clear_cache()


def loaded(folder: Path) -> Any:
    """The model in float32, as the executor serves it on a CPU."""
    model = dequantize_model(load_model(folder, lazy=True)[0])
    mx.eval(model.parameters())
    return model


def log_probabilities(model: Any, ids: list[int], kv: Any = None) -> np.ndarray:
    logits = model(mx.array([ids]), cache=kv)[0]
    return np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))


def greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    kv = make_prompt_cache(model)
    ids = [int(log_probabilities(model, prompt, kv)[-1].argmax())]
    while len(ids) < count:
        ids.append(int(log_probabilities(model, ids[-1:], kv)[-1].argmax()))
    return ids


def farthest_log_probability(model: Any, case: dict[str, Any]) -> float:
    """The largest distance to llama.cpp over the last positions of the prompt."""
    ours = log_probabilities(model, case["prompt_ids"])[-len(case["top"]) :]
    return max(abs(row[i] - theirs) for row, top in zip(ours, case["top"], strict=True) for i, theirs in top)


def permuted_as_llama_cpp(name: str, matrix: np.ndarray) -> np.ndarray:
    """Rows of Q and K in the order of llama.cpp's converter: halves of a head interleaved."""
    heads = {"attn_q": 9, "attn_k": 3}.get(name.split(".")[-2])
    if heads is None:
        return matrix
    return matrix.reshape(heads, 2, -1, matrix.shape[-1]).swapaxes(1, 2).reshape(matrix.shape)


def test_every_tensor_is_bit_equal_to_what_gguf_dequantises(source: Path) -> None:
    weights = mx.load(str(demo_folder() / "model.safetensors"))
    equal = 0
    with GgufFile(source) as file:
        for tensor in gguf.GGUFReader(source).tensors:
            expected = gguf.dequantize(tensor.data, tensor.tensor_type)
            stem = target_name(file, tensor.name).removesuffix(".weight")
            ours = weights[f"{stem}.weight"]
            if ours.dtype == mx.uint32:
                bits = 8 if "embed" in stem else 4
                ours = mx.dequantize(ours, weights[f"{stem}.scales"], weights[f"{stem}.biases"], 32, bits)
            permuted = permuted_as_llama_cpp(tensor.name, np.array(ours))
            equal += np.array_equal(permuted.view(np.uint32), expected.view(np.uint32).reshape(permuted.shape))
    assert equal == 272


@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: case["user"][:12])
def test_the_template_and_tokenizer_give_llama_cpps_prompt_ids(case: dict[str, Any]) -> None:
    config = json.loads((demo_folder() / "tokenizer_config.json").read_text())
    messages = [{"role": "user", "content": case["user"]}]
    text = jinja2.Template(config["chat_template"]).render(messages=messages, add_generation_prompt=True)
    tokenizer = Tokenizer.from_file(str(demo_folder() / "tokenizer.json"))
    assert tokenizer.encode(text).ids == case["prompt_ids"]


@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: case["user"][:12])
def test_log_probabilities_are_llama_cpps(model: Any, case: dict[str, Any]) -> None:
    assert farthest_log_probability(model, case) < 1e-3


@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: case["user"][:12])
def test_every_greedy_token_is_llama_cpps(model: Any, case: dict[str, Any]) -> None:
    prompt, answer = case["prompt_ids"], case["greedy_ids"]
    following = log_probabilities(model, prompt + answer[:-1])[len(prompt) - 1 :]
    assert following.argmax(-1).tolist() == answer


def test_decoding_step_by_step_gives_the_same_greedy_answer(model: Any) -> None:
    assert greedy(model, PARIS["prompt_ids"], 16) == PARIS["greedy_ids"][:16]


def test_a_forgotten_unpermute_still_says_paris_and_is_caught_by_the_logits(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_import, "row_order", lambda config, name, rows: None)
    gguf_import.import_gguf(source, tmp_path)
    mutant = loaded(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    said = tokenizer.decode(greedy(mutant, tokenizer.encode("The capital of France is").ids, 1))
    assert said == " Paris"
    assert farthest_log_probability(mutant, PARIS) > 0.1


def test_generation_ends_at_both_end_tokens() -> None:
    ends = json.loads((demo_folder() / "generation_config.json").read_text())["eos_token_id"]
    tokenizer = Tokenizer.from_file(str(demo_folder() / "tokenizer.json"))
    assert {tokenizer.id_to_token(i) for i in ends} == {"<|im_end|>", "<|endoftext|>"}


def test_control_tokens_are_special_at_the_ids_that_the_file_gives_them(source: Path) -> None:
    with GgufFile(source) as file:
        tokens, types = (file.metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type"))
    special = Tokenizer.from_file(str(demo_folder() / "tokenizer.json")).get_added_tokens_decoder()
    assert {i: token.content for i, token in special.items()} == {i: tokens[i] for i, t in enumerate(types) if t == 3}
    assert all(token.special for token in special.values())
