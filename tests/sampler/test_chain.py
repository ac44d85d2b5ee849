"""The chain as the executor uses it: rows that join and leave, rows that fail alone, and what costs nothing."""

from unittest import mock

import mlx.core as mx
import numpy as np
import pytest
from soloist.sampler import noise
from soloist.sampler.chain import Sampled, fault_of, sample
from soloist.sampler.masks import Masks
from soloist.sampler.params import SamplingParams
from soloist.sampler.rows import Rows, RowSpec

ABCD = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
GREEDY = SamplingParams(temperature=0)
KINDS = (
    GREEDY,
    SamplingParams(),
    SamplingParams(top_k=3),
    SamplingParams(top_p=0.9),
    SamplingParams(min_p=0.1),
    SamplingParams(top_k=40, top_p=0.5, min_p=0.01, temperature=0.7),
)


def drawn(logits: np.ndarray, specs: list[RowSpec], **options: object) -> Sampled:
    rows = Rows(logits.shape[-1], specs)
    return sample(mx.array(logits), rows, rows.keys([0] * len(specs)), **options)


def recited(params: SamplingParams, prompt: list[int], length: int, logits: np.ndarray = ABCD) -> str:
    """`length` letters, drawn one after the other, as the executor does: nothing is read back on the way."""
    rows = Rows(logits.size, [RowSpec(params, prompt=prompt)])
    ids = []
    for step in range(length):
        found = sample(mx.array(logits[None]), rows, rows.keys([step]))
        rows.record(found.ids)
        ids.append(found.ids)
    return "".join("abcd"[int(id.item())] for id in ids)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (SamplingParams(0.0), "aaaaaaaa"),
        (SamplingParams(0.0, presence_penalty=2), "abcaaaaa"),
        (SamplingParams(0.0, presence_penalty=-2), "aaaaaaaa"),
        (SamplingParams(0.0, frequency_penalty=1), "abacbacd"),
    ],
)
def test_presence_and_frequency_count_generated_tokens_only(params: SamplingParams, text: str) -> None:
    assert recited(params, [0, 0, 0], 8) == text


def test_repetition_penalty_multiplies_negative_logits_and_counts_the_prompt() -> None:
    logits = np.array([-1.0, -1.5, -4.0, -5.0], dtype=np.float32)
    assert recited(SamplingParams(0.0, repetition_penalty=2.0), [3], 4, logits) == "abaa"
    assert recited(SamplingParams(0.0, repetition_penalty=2.0), [0, 0], 1, logits) == "b"


def test_a_row_whose_logits_are_no_distribution_fails_alone() -> None:
    vocabulary = 300
    logits = np.random.default_rng(0).normal(size=(len(KINDS) * 5, vocabulary)).astype(np.float32)
    specs = [RowSpec(params, at) for at, params in enumerate(KINDS * 5)]
    healthy = drawn(logits, specs)
    broken = logits.copy()
    faults = {}
    for kind in range(len(KINDS)):
        broken[kind, 277] = np.nan
        broken[len(KINDS) + kind] = -np.inf
        broken[2 * len(KINDS) + kind, 3] = np.inf
        faults |= {kind: "NaN", len(KINDS) + kind: "zero", 2 * len(KINDS) + kind: "infinite"}
    found = drawn(broken, specs)
    sound = [at for at in range(len(specs)) if at not in faults]
    assert all(healthy.ok.tolist())
    assert found.ok.tolist() == [at not in faults for at in range(len(specs))]
    assert np.array(found.ids)[sound].tolist() == np.array(healthy.ids)[sound].tolist()
    assert max(found.ids.tolist()) < vocabulary
    assert all(word in fault_of(mx.array(broken[at])) for at, word in faults.items())


@pytest.mark.parametrize("packed", [False, True])
def test_a_row_masked_to_one_token_returns_that_token(packed: bool) -> None:
    vocabulary, only = 300, 291
    logits = np.random.default_rng(1).normal(size=(len(KINDS), vocabulary)).astype(np.float32)
    logits[:, only] = -50
    allowed = np.zeros((len(KINDS), vocabulary), dtype=bool)
    allowed[:, only] = True
    words = np.packbits(np.pad(allowed, [(0, 0), (0, 20)]), axis=-1, bitorder="little").view(np.int32)
    masks = mx.array(words if packed else allowed)
    found = drawn(logits, [RowSpec(params) for params in KINDS], masks=Masks(masks))
    assert found.ids.tolist() == [only] * len(KINDS) and all(found.ok.tolist())


def test_a_mask_touches_its_own_rows_and_an_empty_one_fails_its_row_alone() -> None:
    logits = np.tile(ABCD, (4, 1))
    specs = [RowSpec(GREEDY)] * 4
    allowed = mx.array([[False, False, True, True], [False] * 4])
    found = drawn(logits, specs, masks=Masks(allowed, places=(1, 2)))
    assert found.ok.tolist() == [True, True, False, True]
    assert [id for id, ok in zip(found.ids.tolist(), found.ok.tolist(), strict=True) if ok] == [0, 2, 0]
    assert "grammar" in fault_of(mx.array(ABCD), masked=True)


def test_a_fully_greedy_batch_makes_no_noise() -> None:
    rows = Rows(4, [RowSpec(GREEDY)] * 3)
    with mock.patch.object(noise, "random_words", side_effect=AssertionError):
        assert sample(mx.array(np.tile(ABCD, (3, 1))), rows, rows.keys([0, 1, 2])).ids.tolist() == [0, 0, 0]


def test_joining_leaving_and_moving_rows_change_no_neighbours_token() -> None:
    logits = np.random.default_rng(2).normal(0, 2, 500).astype(np.float32)
    own = SamplingParams(seed=5, presence_penalty=1.0, repetition_penalty=1.2)
    alone = Rows(500, [RowSpec(own, prompt=[1, 2])])
    crowd = Rows(500, [RowSpec(own, prompt=[1, 2])])
    wanted, got, place = [], [], 0
    for step in range(12):
        if step in (2, 3):
            crowd.add([RowSpec(SamplingParams(seed=step, frequency_penalty=0.5)), RowSpec(KINDS[step])])
        if step == 5:
            crowd.keep([4, 3, 0])
            place = 2
        if step == 8:
            crowd.keep([2])
            place = 0
        for rows, texts, at in ((alone, wanted, 0), (crowd, got, place)):
            found = sample(mx.array(np.tile(logits, (len(rows), 1))), rows, rows.keys([step] * len(rows)))
            rows.record(found.ids)
            texts.append(int(found.ids[at].item()))
    assert got == wanted


def test_arithmetic_is_float32_whatever_the_models_type() -> None:
    logits = np.random.default_rng(3).normal(0, 2, (6, 700)).astype(np.float32)
    for dtype in (mx.bfloat16, mx.float16):
        low = mx.array(logits).astype(dtype)
        rows = Rows(700, [RowSpec(params, at, logprobs=3) for at, params in enumerate(KINDS)])
        found = sample(low, rows, rows.keys([0] * 6))
        same = sample(low.astype(mx.float32), rows, rows.keys([0] * 6))
        assert found.logprob.dtype == mx.float32
        assert found.ids.tolist() == same.ids.tolist() and found.logprob.tolist() == same.logprob.tolist()


def test_ids_outside_the_vocabulary_never_reach_the_device() -> None:
    for params in (SamplingParams(logit_bias=((4, 1.0),)), SamplingParams(logit_bias=((-1, 1.0),))):
        with pytest.raises(ValueError, match="from 0 to 3"):
            Rows(4, [RowSpec(params)])
    with pytest.raises(ValueError, match="from 0 to 3"):
        Rows(4, [RowSpec(SamplingParams(presence_penalty=1), prompt=[4])])


def test_top_k_of_one_is_greedy_even_among_equals() -> None:
    logits = np.zeros((50, 130), dtype=np.float32)
    assert set(drawn(logits, [RowSpec(SamplingParams(top_k=1), at) for at in range(50)]).ids.tolist()) == {0}


def test_extreme_temperatures_stay_finite() -> None:
    logits = np.array([[80.0, 79.0, -80.0, 0.0]], dtype=np.float32)
    for temperature in (1e-45, 1e-30, 1e-6):
        assert drawn(logits, [RowSpec(SamplingParams(temperature=temperature))]).ids.tolist() == [0]
    found = drawn(logits * 1e35, [RowSpec(params) for params in KINDS[1:2]])
    assert found.ids.tolist() == [0] and found.ok.tolist() == [True]


def test_rows_that_ask_for_no_logprobs_get_none_computed() -> None:
    found = drawn(np.tile(ABCD, (2, 1)), [RowSpec(GREEDY), RowSpec(GREEDY)])
    assert found.logprob is None and found.top_ids is None and len(found.arrays()) == 2
    found = drawn(np.tile(ABCD, (2, 1)), [RowSpec(GREEDY), RowSpec(GREEDY, logprobs=9)])
    assert found.top_ids.shape == (2, 4)
    assert found.logprob.tolist() == pytest.approx([0.0, np.log(0.5)], abs=1e-6)
