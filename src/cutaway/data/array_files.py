"""Files of arrays, read piece by piece: idx (MNIST) and npz (NumPy). No code is run, and stated sizes are checked.

An idx file is 0 0 8 k, then k sizes of four bytes each, then the bytes. An npz file is a zip archive of npy files.
"""

import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cutaway.data.text_files import file_size, open_bytes, read_some
from cutaway.data.zip_archives import open_member, open_zip, read_member
from cutaway.errors import CheckpointError, InputError
from cutaway.files import MEGABYTE
from cutaway.npy import read_header
from cutaway.unpacked import GZIP, XZ

MOST_OF_ONE = 1 << 28  # bytes of one image
# The largest compression ratios that are possible; a file that states more is damaged.
DENSEST_ZIP, DENSEST = 1032, 8192


@contextmanager
def open_idx(path: Path, n_axes: int) -> Iterator[tuple[tuple[int, ...], Iterator[bytes]]]:
    """The shape of an idx file of bytes, and its bytes in chunks of whole items of the first axis."""
    with open_bytes(path) as (file, _):
        head = read_some(file, path, 4)
        if head != bytes([0, 0, 8, n_axes]):
            raise InputError(f"{path} is not an idx file of bytes with {n_axes} axes: it begins with {head.hex(' ')}")
        head = read_some(file, path, 4 * n_axes)
        if len(head) < 4 * n_axes:
            raise InputError(f"{path} is truncated in its header")
        shape = tuple(np.frombuffer(head, ">u4").tolist())
        stated, there = math.prod(shape), file_size(path)
        packed = _is_packed(path)
        if stated > DENSEST * there or (not packed and stated != there - 4 - 4 * n_axes):
            raise InputError(
                f"{path} states that it holds {_times(shape)} bytes, which does not fit its size of {there:,}"
            )
        item = math.prod(shape[1:])

        def chunks() -> Iterator[bytes]:
            left = stated
            while left:
                chunk = read_some(file, path, min(left, _chunk(item, path)))
                left -= len(chunk)
                if not chunk or len(chunk) % item:
                    raise InputError(f"{path} is truncated: {left:,} of the {_times(shape)} bytes are missing")
                yield chunk
            if read_some(file, path, 1):
                raise InputError(f"{path} holds more than the {_times(shape)} bytes that it states")

        yield shape, chunks()


def _is_packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8).startswith((GZIP, XZ))


class Npz:
    """The arrays of an npz archive."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]) -> None:
        self.path, self.archive, self.size = path, archive, file_size(path)
        self.members = {name.removesuffix(".npy"): info for name, info in members.items()}

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator["Npz"]:
        with open_zip(path, "npz") as (archive, members):
            yield cls(path, archive, members)

    @contextmanager
    def open(self, name: str) -> Iterator["Member"]:
        """One array, whose stated size fits the archive."""
        if name not in self.members:
            there = ", ".join(sorted(self.members)) or "none"
            raise InputError(f"{self.path} has no array {name!r}; there are {there}")
        where, info = f"{name} in {self.path}", self.members[name]
        with open_member(self.archive, info, where) as file:
            yield Member(file, info, self.size, where)


class Member:
    """An array in an archive, read from beginning to end."""

    def __init__(self, file: BufferedIOBase, info: zipfile.ZipInfo, archive_size: int, where: str) -> None:
        self.file, self.where = file, where
        try:
            self.header = read_header(file, where)
        except CheckpointError as error:
            raise InputError(str(error)) from None
        self.shape, self.dtype, self.n_bytes = self.header.shape, self.header.dtype, self.header.n_bytes
        if self.header.by_column:
            raise InputError(f"{where} is {self.header}; arrays of numbers, row by row, are read")
        packed = info.compress_size
        if file.tell() + self.n_bytes != info.file_size or not info.file_size <= DENSEST_ZIP * packed <= (
            DENSEST_ZIP * archive_size
        ):
            raise InputError(f"{where} states that it is {self.header}, which does not fit its {packed:,} bytes")

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def integers(self) -> Iterator[NDArray[np.int64]]:
        """Chunks of a one-dimensional array of integers from 0 up."""
        if len(self.shape) != 1 or self.dtype.kind not in "iu":
            raise InputError(f"{self.where} should be a one-dimensional array of integers, not {self.header}")
        for data in self.chunks(self.dtype.itemsize):
            numbers = np.frombuffer(data, self.dtype)
            if not 0 <= int(numbers.min()) <= int(numbers.max()) < 1 << 62:
                raise InputError(
                    f"{self.where} holds {numbers.min()} … {numbers.max()}; numbers from 0 up are expected"
                )
            yield numbers.astype(np.int64)

    def chunks(self, item: int) -> Iterator[bytes]:
        """The bytes, in chunks of whole items."""
        left = self.n_bytes
        while left:
            chunk = self._read(min(left, _chunk(item, self.where)))
            left -= len(chunk)
            yield chunk

    def parts(self, offsets: Iterable[NDArray[np.int64]]) -> Iterator[bytes]:
        """The bytes from each offset to the next."""
        wrong = InputError(f"the offsets of {self.where} must rise from 0 to {self.n_bytes}")
        each = (offset for some in offsets for offset in some.tolist())
        at = next(each, None)
        if at != 0:
            raise wrong
        for offset in each:
            if not at < offset <= self.n_bytes:
                raise wrong
            _check_size(offset - at, self.where)
            yield self._read(offset - at)
            at = offset
        if at != self.n_bytes:
            raise wrong

    def _read(self, n: int) -> bytes:
        data = read_member(self.file, n, self.where)
        if len(data) < n:
            raise InputError(f"{self.where} is truncated")
        return data


def _chunk(item: int, where: object) -> int:
    """Whole items of about a megabyte."""
    _check_size(item, where)
    return max(1, MEGABYTE // item) * item


def _check_size(image: int, where: object) -> None:
    if image > MOST_OF_ONE:
        raise InputError(f"{where}: an image of {image:,} bytes; at most {MOST_OF_ONE:,} are read")


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))
