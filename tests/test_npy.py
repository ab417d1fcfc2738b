"""Arrays that others saved: numpy's own come back as they were, and no header can ask for more than its file."""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from helpers.limits import limits

from cutaway.errors import CheckpointError
from cutaway.npy import open_npy, read_header

KINDS = ["?", "i1", "<i2", ">i4", "<i8", "u1", "<u8", "<f2", "<f4", ">f8", "<c8"]
SHAPES = [(), (0,), (5,), (3, 4), (0, 7), (2, 3, 4)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_saves_comes_back(tmp_path: Path, kind: str, shape: tuple[int, ...], order: str):
    array = np.asarray(np.random.default_rng(0).integers(0, 2, shape), kind, order=order)
    for version in ((1, 0), (2, 0), (3, 0)):
        with (tmp_path / "x.npy").open("wb") as file:
            np.lib.format.write_array(file, array, version)
        found = open_npy(tmp_path / "x.npy")
        assert found.dtype == array.dtype
        assert found.shape == shape
        np.testing.assert_array_equal(found, array)


def test_a_row_of_numbers_has_no_columns():
    """Whatever order is stated: in archives arrays by column are refused."""
    for shape in ("()", "(2,)"):
        assert not read_header(io.BytesIO(saved(header(order="True", shape=shape))), "x.npy").by_column
    assert read_header(io.BytesIO(saved(header(order="True", shape="(1, 2)"))), "x.npy").by_column


def saved(head: str, data: bytes = bytes(8), version: bytes = b"\1\0", length: int | None = None) -> bytes:
    encoded = head.encode("latin-1")
    form = "<H" if version == b"\1\0" else "<I"
    return b"\x93NUMPY" + version + struct.pack(form, len(encoded) if length is None else length) + encoded + data


def header(descr: str = "'<f4'", order: str = "False", shape: str = "(2,)", more: str = "") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, {more}}}"


HOSTILE = {
    "empty": b"",
    "no array": b"word 0.1 0.2\n",
    "version 9": saved(header(), version=b"\x09\0"),
    "cut short in its header": saved(header(), b"", length=200),
    "a header of 4 GB": saved(header(), version=b"\2\0", length=2**32 - 1),
    "not UTF-8": saved("{'descr': '\xff'}"),
    "an open bracket": saved("{'descr': ((((("),
    "nested": saved("(" * 9000),
    "minus signs": saved("-" * 9000 + "1"),
    "no object": saved("1"),
    "code": saved("__import__('os').system('true')"),
    "a key too many": saved(header(more="'x': 1")),
    "objects": saved(header("'|O'")),
    "objects in a structure": saved(header("[('a', '|O')]")),
    "texts": saved(header("'<U99999999'")),
    "raw bytes": saved(header("'|V8'")),
    "dates": saved(header("'<M8[ns]'")),
    "no such dtype": saved(header("'<f3'")),
    "a dtype of numbers by comma": saved(header("'i4,i4'")),
    "a shape of words": saved(header(shape="('a',)")),
    "a shape of truth": saved(header(shape="(True, 2)")),
    "a negative shape": saved(header(shape="(-2,)")),
    "a number as shape": saved(header(shape="2")),
    "too many axes": saved(header(shape="(" + "1, " * 70 + ")")),
    "a huge shape": saved(header(shape="(1 << 40,)".replace("1 << 40", str(1 << 40)))),
    "a shape that overflows": saved(header(shape=f"({1 << 62}, 4)")),
    "a shape of 5,000 digits": saved(header(shape="(" + "9" * 5000 + ",)")),
    "huge and empty": saved(header(shape=f"({1 << 62}, 4, 0)"), b""),
    "one number too few": saved(header(), bytes(7)),
    "one number too many": saved(header(), bytes(12)),
    "an order that is none": saved(header(order="None")),
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_a_header_that_lies_is_refused_with_the_name_of_the_file(tmp_path: Path, fault: str):
    path = tmp_path / "x.npy"
    path.write_bytes(HOSTILE[fault])
    with limits(5, 64), pytest.raises(CheckpointError) as error:
        open_npy(path)
    assert str(error.value).startswith(f"{path} ")


def test_32_axes_are_read_and_no_more(tmp_path: Path):
    """As many as any numpy has; what comes out of an archive is not looked at again by numpy's reader."""
    path = tmp_path / "x.npy"
    path.write_bytes(saved(header(shape="(" + "1, " * 31 + "2)")))
    assert open_npy(path).shape == (*[1] * 31, 2)
    with pytest.raises(CheckpointError, match=r"^x has no header of arrays of numbers"):
        read_header(io.BytesIO(saved(header(shape="(" + "1, " * 32 + "2)"))), "x")


@pytest.mark.parametrize("version", [b"\1\0", b"\2\0"])
def test_a_header_of_10000_bytes_is_read_and_no_longer_one(tmp_path: Path, version: bytes):
    path = tmp_path / "x.npy"
    path.write_bytes(saved(header().ljust(10_000), version=version))
    assert open_npy(path).tolist() == [0.0, 0.0]
    path.write_bytes(saved(header().ljust(10_001), version=version))
    with pytest.raises(CheckpointError, match="its header should have 10,001 bytes"):
        open_npy(path)


def test_only_the_header_is_read_of_an_array_in_an_archive():
    file = io.BytesIO(saved(header(shape=f"({1 << 40},)"), b"rest"))
    found = read_header(file, "x")
    assert (found.shape, found.n_bytes, file.read()) == ((1 << 40,), 1 << 42, b"rest")


def test_an_array_is_mapped_and_not_written_to(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.arange(3))
    found = open_npy(tmp_path / "x.npy")
    assert isinstance(found, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


@pytest.mark.parametrize(("n", "read"), [(9_999, True), (10_000, True), (10_001, False)])
def test_a_header_of_just_the_limit_is_read(n: int, read: bool, tmp_path: Path):
    text = header().ljust(n)
    (tmp_path / "x.npy").write_bytes(saved(text, version=b"\2\0"))
    if read:
        assert open_npy(tmp_path / "x.npy").shape == (2,)
    else:
        with pytest.raises(CheckpointError, match="its header should have 10,001 bytes"):
            open_npy(tmp_path / "x.npy")
