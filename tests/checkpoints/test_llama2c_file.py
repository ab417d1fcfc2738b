"""llama2.c files, versions 0 and 1, tied and untied, against numbers laid down in the order of its export script."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from cutaway.checkpoints.llama2c_file import Llama2cFile
from cutaway.errors import CheckpointError

SIZES = {"dim": 8, "hidden_dim": 12, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 10, "seq_len": 6}
SHAPES = {
    "token_embedding_table": (10, 8), "rms_att_weight": (2, 8), "wq": (2, 8, 8), "wk": (2, 4, 8), "wv": (2, 4, 8),
    "wo": (2, 8, 8), "rms_ffn_weight": (2, 8), "w1": (2, 12, 8), "w2": (2, 8, 12), "w3": (2, 12, 8),
    "rms_final_weight": (8,), "freq_cis_real": (6, 1), "freq_cis_imag": (6, 1), "wcls": (10, 8),
}  # fmt: skip
ORDER_0 = list(SHAPES)
ORDER_1 = "rms_att_weight rms_ffn_weight rms_final_weight token_embedding_table wq wk wv wo w1 w2 w3 wcls".split()


def write(path: Path, version: int, tied: bool, sizes: dict[str, int] = SIZES) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    tensors = {name: generator.standard_normal(shape).astype("<f4") for name, shape in SHAPES.items()}
    numbers = list(sizes.values())
    if version == 0:
        numbers[5] *= 1 if tied else -1
        head = struct.pack("<7i", *numbers)
    else:
        head = struct.pack("<Ii7iB", 0x616B3432, version, *numbers, tied).ljust(256, b"\0")
    order = [name for name in (ORDER_0 if version == 0 else ORDER_1) if not (tied and name == "wcls")]
    path.write_bytes(head + b"".join(tensors[name].tobytes() for name in order))
    return {name: tensors[name] for name in order if "freq" not in name}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("version", [0, 1])
def test_every_tensor_is_where_llama2c_puts_it(tmp_path: Path, version: int, tied: bool):
    tensors = write(tmp_path / "model.bin", version, tied)
    file = Llama2cFile(tmp_path / "model.bin")
    assert (file.version, file.tied, file.config) == (version, tied, SIZES)
    names = set()
    for name, array in tensors.items():
        stacked = len(array.shape) == 3 or name in ("rms_att_weight", "rms_ffn_weight")
        parts = {f"{name}.{layer}": array[layer] for layer in range(2)} if stacked else {name: array}
        names |= parts.keys()
        for part, expected in parts.items():
            target = torch.empty(file.shape(part))
            file.copy_into(part, target)
            assert torch.equal(target, torch.from_numpy(expected))
            assert torch.equal(file.read(part), target)
    assert set(file.names()) == names
    assert ("wcls" in file) == (not tied)


def test_writing_to_a_view_leaves_the_file_alone(tmp_path: Path):
    path = tmp_path / "model.bin"
    write(path, 0, True)
    before = path.read_bytes()
    Llama2cFile(path).read("wq.0").fill_(7)
    assert path.read_bytes() == before


def test_a_file_that_shrinks_under_us_is_told(tmp_path: Path):
    write(tmp_path / "model.bin", 0, True)
    file = Llama2cFile(tmp_path / "model.bin")
    os.truncate(tmp_path / "model.bin", 100)
    with pytest.raises(CheckpointError, match="became shorter"):
        file.copy_into("w3.1", torch.empty(12, 8))


@pytest.mark.parametrize("size", [0, 10, 27])
def test_a_file_without_a_whole_header_is_refused(tmp_path: Path, size: int):
    write(tmp_path / "model.bin", 0, True)
    os.truncate(tmp_path / "model.bin", size)
    with pytest.raises(CheckpointError, match=rf"too short for a llama2\.c model: {size} bytes"):
        Llama2cFile(tmp_path / "model.bin")


@pytest.mark.parametrize(
    "change", [{"dim": 0}, {"n_heads": 3}, {"n_kv_heads": 3}, {"n_layers": -1}, {"dim": 2**31 - 1}]
)
def test_impossible_sizes_are_refused(tmp_path: Path, change: dict[str, int]):
    write(tmp_path / "model.bin", 0, True, SIZES | change)
    with pytest.raises(CheckpointError, match=r"is not a llama2\.c file: its header would mean"):
        Llama2cFile(tmp_path / "model.bin")


def test_sizes_that_the_file_does_not_bear_out_are_refused_before_it_is_mapped(tmp_path: Path):
    write(tmp_path / "model.bin", 0, True, SIZES | {"dim": 1 << 20, "vocab_size": 1 << 20})
    with pytest.raises(CheckpointError, match=r"takes [\d,]{15,} bytes, but there are"):
        Llama2cFile(tmp_path / "model.bin")


def test_the_quantised_version_is_refused_by_name(tmp_path: Path):
    write(tmp_path / "model.bin", 2, True)
    with pytest.raises(CheckpointError, match=r"version 2; supported are 0 and 1"):
        Llama2cFile(tmp_path / "model.bin")
