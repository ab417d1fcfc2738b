"""Fault 20: a safetensors file whose header lies is refused before anything is allocated."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.limits import limits
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.checkpoints.tensors import open_tensors, write_tensors
from cutaway.errors import CheckpointError


def blob(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape: list, offsets: list, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


TWICE = json.dumps({"a": entry([2], [0, 8])})[:-1] + ", " + json.dumps({"a": entry([2], [0, 8])})[1:]
HOSTILE = {
    "empty": b"",
    "short": b"1234567",
    "header of 2^63 bytes": blob(b"{}", length=2**63),
    "header of 2^64-1 bytes": blob(b"{}", length=2**64 - 1),
    "header beyond the file": blob(b"{}", length=200),
    "header over 100 MB": blob(b"{}" + b" " * (101 << 20)),
    "not UTF-8": blob(b'{"\xff": 1}'),
    "not JSON": blob(b"{nope"),
    "an array": blob(b"[]"),
    "nested": blob(b'{"a":' + b"[" * 100_000),
    "overlap": blob({"a": entry([2], [0, 8]), "b": entry([2], [4, 12])}, bytes(12)),
    "the same place": blob({"a": entry([2], [0, 8]), "b": entry([2], [0, 8])}, bytes(8)),
    "hole": blob({"a": entry([2], [0, 8]), "b": entry([2], [16, 24])}, bytes(24)),
    "hole at the end": blob({"a": entry([2], [0, 8])}, bytes(24)),
    "size beyond the file": blob({"a": entry([2], [0, 8])}, bytes(4)),
    "shape overflow": blob({"a": entry([2**40, 2**40], [0, 8])}, bytes(8)),
    "shape overflow to nothing": blob({"a": entry([2**32, 2**32], [0, 0])}),
    "shape larger than its place": blob({"a": entry([10**9, 10**6], [0, 8])}, bytes(8)),
    "negative shape": blob({"a": entry([-2], [0, 8])}, bytes(8)),
    "fractional shape": blob({"a": entry([2.0], [0, 8])}, bytes(8)),
    "offsets reversed": blob({"a": entry([2], [8, 0])}, bytes(8)),
    "unknown dtype": blob({"a": entry([2], [0, 8], "F33")}, bytes(8)),
    "dtype without a tensor": blob({"a": entry([4], [0, 3], "F6_E2M3")}, bytes(3)),
    "packed dtype": blob({"a": entry([4], [0, 2], "F4")}, bytes(2)),
    "a name twice": blob(TWICE.encode(), bytes(8)),
    "metadata that is not text": blob({"__metadata__": {"a": 1}}),
    "entry is no object": blob({"a": 5}),
    "git-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_fault_20_a_header_that_lies_is_refused_before_allocation(tmp_path: Path, case: str):
    path = tmp_path / "model.safetensors"
    path.write_bytes(HOSTILE[case])
    with limits(30, 200), pytest.raises(CheckpointError, match=r"model\.safetensors"):
        open_tensors(path)


def test_fault_20_the_first_bytes_tell_what_a_file_is(tmp_path: Path):
    for case, reason in (("empty", "it is empty"), ("git-lfs", "Git LFS pointer: fetch")):
        (tmp_path / "x.safetensors").write_bytes(HOSTILE[case])
        with pytest.raises(CheckpointError, match=reason):
            open_tensors(tmp_path / "x.safetensors")


def test_fault_20_a_folder_without_weights_is_told(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"holds no model\.safetensors"):
        open_tensors(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be read: No such file"):
        open_tensors(tmp_path / "absent.safetensors")


def sound(path: Path) -> bytes:
    write_tensors(path, {"a": torch.ones(3, 4), "b": torch.ones(5, dtype=torch.int8)}, {"format": "pt"})
    return path.read_bytes()


def read_all(path: Path) -> None:
    """Either every tensor is read, or the error is ours."""
    try:
        file = open_tensors(path)
        for name in file.names():
            file.read(name)
            file.read(name, copy=True)
    except CheckpointError:
        pass


def test_fault_20_a_file_cut_anywhere_is_refused(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    data = sound(path)
    with limits():
        for length in range(len(data)):
            path.write_bytes(data[:length])
            with pytest.raises(CheckpointError):
                open_tensors(path)


@settings(max_examples=400)
@given(at=st.integers(0, 10_000), new=st.binary(min_size=1, max_size=8))
def test_fault_20_bytes_changed_anywhere_give_our_error_or_tensors(
    at: int, new: bytes, tmp_path_factory: pytest.TempPathFactory
):
    path = tmp_path_factory.getbasetemp() / "flipped.safetensors"
    data = sound(path)
    at %= len(data)
    path.write_bytes(data[:at] + new + data[at + len(new) :])
    with limits():
        read_all(path)
