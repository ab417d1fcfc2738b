"""GGUF: our header reader against the gguf package's, every quantisation against its dequantiser."""

import os
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import _type_traits

from cutaway.checkpoints import weight_source
from cutaway.checkpoints.gguf_file import GGUFFile
from cutaway.errors import CheckpointError, MissingExtra

KINDS = sorted([kind.name for kind in _type_traits] + ["F16", "F32", "F64", "I8", "I16", "I32", "I64"])


def write(path: Path, tensors: dict[str, tuple[np.ndarray, str]], alignment: int = 32, **metadata: object) -> Path:
    """A GGUF file by the gguf package; quantised tensors come as bytes."""
    writer = gguf.GGUFWriter(path, "llama")
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    for key, value in metadata.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        else:
            kinds = {str: gguf.GGUFValueType.STRING, bool: gguf.GGUFValueType.BOOL, int: gguf.GGUFValueType.INT64}
            writer.add_key_value(key, value, kinds.get(type(value), gguf.GGUFValueType.FLOAT64))
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_tensor(kind: str, *shape: int) -> np.ndarray:
    """Random numbers of a plain kind, or random blocks of a quantised one."""
    generator = np.random.default_rng(0)
    plain = {"F16": "f2", "F32": "f4", "F64": "f8", "I8": "i1", "I16": "i2", "I32": "i4", "I64": "i8"}
    if kind in plain:
        return (generator.standard_normal(shape) * 100).astype(plain[kind])
    block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = shape[-1] // block
    return generator.integers(0, 120, (*shape[:-1], blocks * block_bytes), dtype=np.uint8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(256,), (6, 512), (3, 2, 256)])
def test_every_quantisation_is_read_as_the_gguf_package_reads_it(tmp_path: Path, kind: str, shape: tuple, monkeypatch):
    monkeypatch.setattr(weight_source, "CHUNK", 500)  # several pieces
    path = write(tmp_path / "x.gguf", {"before": (np.zeros(3, "f4"), "F32"), "w": (random_tensor(kind, *shape), kind)})
    file = GGUFFile(path)
    peer = next(tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == "w")
    data = np.array(peer.data)
    whole = data.astype("f4") if kind[0] in "FI" and kind[1].isdigit() else gguf.dequantize(data, peer.tensor_type)
    assert file.shape("w") == shape
    assert file.dtype("w") == torch.float32
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(file.read("w").numpy(), whole.reshape(shape))


def test_metadata_are_plain_python_values(tmp_path: Path):
    words = ["", "a", "日本", "x" * 1000]
    path = write(
        tmp_path / "x.gguf", {}, s="ä", yes=True, n=-5, pi=3.25, words=words, ids=[1, 2, 3], f=[0.5], no=[False]
    )
    expected = {"s": "ä", "yes": True, "n": -5, "pi": 3.25, "words": words, "ids": [1, 2, 3], "f": [0.5], "no": [False]}
    metadata = GGUFFile(path).metadata
    assert metadata == {"general.architecture": "llama"} | expected
    assert {key: type(value) for key, value in metadata.items() if key in ("yes", "n", "pi")} == {
        "yes": bool, "n": int, "pi": float,
    }  # fmt: skip


@pytest.mark.parametrize("alignment", [8, 32, 1024])
def test_the_data_begin_at_the_stated_alignment(tmp_path: Path, alignment: int):
    numbers = np.arange(7, dtype="f4")
    path = write(tmp_path / "x.gguf", {"a": (numbers, "F32"), "b": (numbers + 1, "F32")}, alignment)
    assert torch.equal(GGUFFile(path).read("a"), torch.from_numpy(numbers))
    assert torch.equal(GGUFFile(path).read("b"), torch.from_numpy(numbers + 1))


def test_a_file_that_shrinks_under_us_is_told(tmp_path: Path):
    path = write(tmp_path / "x.gguf", {"a": (np.zeros((9, 9), "f4"), "F32")})
    file = GGUFFile(path)
    os.truncate(path, 200)
    with pytest.raises(CheckpointError, match="became shorter"):
        file.read("a")


def test_what_the_package_cannot_dequantise_is_told(tmp_path: Path):
    path = write(tmp_path / "x.gguf", {"a": (np.zeros((2, 40), np.uint8), "Q8_1")})
    with pytest.raises(CheckpointError, match="cannot dequantise Q8_1"):
        GGUFFile(path).read("a")


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtra, match=r"-m pip install gguf"):
        GGUFFile(tmp_path / "x.gguf")
