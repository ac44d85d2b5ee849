"""What the importer must not let through: damaged files, and whole ones that it could only carry over nearly right."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny_gguf
from hypothesis import given, settings
from hypothesis import strategies as st
from soloist.ops.gguf_import import import_gguf
from soloist.ops.model_errors import ModelDamaged, ModelError, ModelNotFound, ModelUnsupported


def refused(path: Path, kind: type[ModelError] = ModelUnsupported) -> str:
    """The importer's one line about `path`."""
    with pytest.raises(kind) as caught:
        import_gguf(path, path.parent)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_0", "Q5_1", "Q6_K", "BF16", "IQ4_NL"])
def test_a_tensor_of_another_type_is_named_with_its_type(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    chosen = gguf.GGMLQuantizationType[kind]
    values, size = gguf.GGML_QUANT_SIZES[chosen]
    writer.add_tensor("blk.0.ffn_up.weight", np.zeros((2, 256 // values * size), np.uint8), raw_dtype=chosen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert f"blk.0.ffn_up.weight is of type {kind}" in refused(path)


def test_another_architecture_is_named(tmp_path: Path) -> None:
    path = tiny_gguf.write(tmp_path / "m.gguf", tiny_gguf.weights(), architecture="qwen2")
    assert "'qwen2'" in refused(path)


@pytest.mark.parametrize(
    ("key", "value"), [("expert_count", 8), ("attention.sliding_window", 64), ("rope.dimension_count", 16)]
)
def test_metadata_that_mlx_lm_has_no_place_for_is_named(key: str, value: int, tmp_path: Path) -> None:
    path = tiny_gguf.write(
        tmp_path / "m.gguf", tiny_gguf.weights(), edit=lambda writer: writer.add_uint32(f"llama.{key}", value)
    )
    assert f"llama.{key}" in refused(path)


def test_rope_scaling_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tiny_gguf.write(
        tmp_path / "m.gguf",
        tiny_gguf.weights(),
        edit=lambda writer: writer.add_rope_scaling_type(gguf.RopeScalingType.YARN),
    )
    assert "'yarn'" in refused(path)


def test_rope_divisors_of_another_rule_are_refused(tmp_path: Path) -> None:
    divisors = np.linspace(1, 3, tiny_gguf.HEAD // 2, dtype=np.float32)
    path = tiny_gguf.write(tmp_path / "m.gguf", tiny_gguf.weights() | {"rope_freqs.weight": divisors})
    assert "rope_freqs.weight" in refused(path)


@pytest.mark.parametrize("name", ["blk.0.ffn_gate_inp.weight", "blk.0.attn_norm.bias", "blk.bias", "output.bias"])
def test_a_tensor_that_no_llama_has_is_named(name: str, tmp_path: Path) -> None:
    extra = {name: np.zeros(64, np.float32)}
    assert name in refused(tiny_gguf.write(tmp_path / "m.gguf", tiny_gguf.weights() | extra))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    tensors = tiny_gguf.weights()
    del tensors["blk.1.attn_k.weight"]
    assert "blk.1.attn_k.weight" in refused(tiny_gguf.write(tmp_path / "m.gguf", tensors), ModelDamaged)


def test_a_tensor_of_another_shape_than_promised_is_named(tmp_path: Path) -> None:
    tensors = tiny_gguf.weights() | {"blk.1.ffn_up.weight": np.zeros((32, 64), np.float32)}
    assert "blk.1.ffn_up.weight" in refused(tiny_gguf.write(tmp_path / "m.gguf", tensors), ModelDamaged)


def test_a_file_without_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tiny_gguf.write(tmp_path / "m.gguf", tiny_gguf.weights(), vocabulary=False)
    assert "vocabulary" in refused(path, ModelDamaged)


def test_an_unknown_pre_tokenizer_is_named(tmp_path: Path) -> None:
    path = tiny_gguf.write(tmp_path / "m.gguf", tiny_gguf.weights(), pre="viking-9")
    assert "'viking-9'" in refused(path)


def test_an_unknown_tokenizer_model_is_named(tmp_path: Path) -> None:
    path = tiny_gguf.write(
        tmp_path / "m.gguf", tiny_gguf.weights(), edit=lambda writer: writer.add_string("tokenizer.ggml.model", "t5")
    )
    assert "'t5'" in refused(path)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf.write(tmp_path_factory.mktemp("whole") / "m.gguf", tiny_gguf.weights(), "Q4_0")


@pytest.fixture(scope="module")
def whole(stored: Path) -> bytes:
    return stored.read_bytes()


@pytest.mark.parametrize("kept", [5, 20, 200, 3000, -4000, -1])
def test_a_truncated_file_is_called_truncated_wherever_it_was_cut(kept: int, whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(whole[:kept])
    assert "truncated" in refused(path, ModelDamaged)


def test_wrong_magic_version_and_byte_order_are_told_apart(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGML" + whole[4:])
    assert "not a GGUF" in refused(path, ModelDamaged)
    path.write_bytes(whole[:4] + struct.pack("<I", 1) + whole[8:])
    assert "version 1" in refused(path)
    path.write_bytes(whole[:4] + struct.pack(">I", 3) + whole[8:])
    assert "big-endian" in refused(path)
    path.write_bytes(b"")
    assert "empty" in refused(path, ModelDamaged)
    assert "cannot read" in refused(tmp_path / "absent.gguf", ModelNotFound)


def test_a_count_that_cannot_be_true_is_refused_at_once(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(whole[:8] + struct.pack("<QQ", 2**62, 2**62) + whole[24:])
    refused(path, ModelDamaged)


@settings(max_examples=300, deadline=None)
@given(at=st.integers(4, 5500), byte=st.integers(0, 255))
def test_a_changed_byte_of_the_header_never_raises_anything_but_our_errors(at: int, byte: int, stored: Path) -> None:
    import tempfile

    whole = stored.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
        (Path(folder) / "out").mkdir()
        try:
            import_gguf(path, Path(folder) / "out")
        except ModelError as error:
            assert "\n" not in str(error)
