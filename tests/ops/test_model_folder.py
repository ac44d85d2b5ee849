"""A folder is judged from headers alone, and the verdict names the file at fault."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from soloist.ops.model_errors import ModelDamaged, ModelError, ModelNotFound, ModelUnsupported
from soloist.ops.model_folder import check_folder

CONFIG: dict[str, Any] = {"model_type": "llama"}


def folder_of(path: Path, **config: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(CONFIG | config))
    save_file({"a": np.zeros((4, 4), np.float16), "b": np.zeros(2, np.float32)}, path / "model.safetensors")
    return path


def verdict(path: Path, kind: type[ModelError] = ModelDamaged) -> str:
    with pytest.raises(kind) as caught:
        check_folder(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_good_folder_gives_its_facts(tmp_path: Path) -> None:
    facts = check_folder(folder_of(tmp_path))
    assert (facts.model_type, facts.quantization) == ("llama", "F16")
    assert facts.bytes == (tmp_path / "model.safetensors").stat().st_size


def test_mixed_bits_are_told(tmp_path: Path) -> None:
    packed = {"group_size": 32, "bits": 4, "lm_head": {"group_size": 32, "bits": 8}}
    assert check_folder(folder_of(tmp_path, quantization=packed)).quantization == "4/8-bit"


@pytest.mark.parametrize("kind", ["mistral", "qwen2", "deepseek_v3"])
def test_every_type_that_mlx_lm_has_or_maps_is_known(kind: str, tmp_path: Path) -> None:
    assert check_folder(folder_of(tmp_path, model_type=kind)).model_type == kind


def test_an_unknown_type_is_named(tmp_path: Path) -> None:
    assert "'llama9'" in verdict(folder_of(tmp_path, model_type="llama9"), ModelUnsupported)


@pytest.mark.parametrize("kind", [None, 7, "../llama", ""])
def test_a_type_that_is_no_name_is_refused(kind: Any, tmp_path: Path) -> None:
    assert "model_type" in verdict(folder_of(tmp_path, model_type=kind))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00"])
def test_a_config_that_is_no_json_object_is_named(text: str, tmp_path: Path) -> None:
    (folder_of(tmp_path) / "config.json").write_text(text)
    assert "config.json" in verdict(tmp_path)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert "no model folder" in verdict(tmp_path / "absent", ModelNotFound)
    assert "config.json" in verdict(tmp_path)
    (folder_of(tmp_path) / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    assert "pytorch_model.bin" in verdict(tmp_path)


def test_an_adapter_folder_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "--adapter" in verdict(tmp_path)


@pytest.mark.parametrize("kept", [0, 4, 50, -1])
def test_a_truncated_file_is_named_wherever_it_was_cut(kept: int, tmp_path: Path) -> None:
    weights = folder_of(tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    said = verdict(tmp_path)
    assert "model.safetensors is truncated" in said


@pytest.mark.parametrize(
    "header",
    [b"nonsense", b"[]", b'{"a": 3}', b'{"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 4]}}'],
)
def test_a_header_that_cannot_be_true_is_named(header: bytes, tmp_path: Path) -> None:
    (folder_of(tmp_path) / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    assert "model.safetensors is damaged" in verdict(tmp_path)


def test_a_git_lfs_pointer_is_called_one(tmp_path: Path) -> None:
    (folder_of(tmp_path) / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert "git lfs pull" in verdict(tmp_path)


def test_a_shard_that_the_index_names_must_be_there_and_hold_its_tensors(tmp_path: Path) -> None:
    index = folder_of(tmp_path) / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}))
    assert "model-2.safetensors" in verdict(tmp_path)
    index.write_text(json.dumps({"weight_map": {"c": "model.safetensors"}}))
    assert "puts c into model.safetensors" in verdict(tmp_path)
    index.write_text("{}")
    assert "index.json" in verdict(tmp_path)
