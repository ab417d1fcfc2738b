"""Two containers of arrays, read piece by piece: idx (MNIST) and npz (numpy). Neither can run code or lie about sizes.

An idx file is 0 0 8 k, then k sizes of four bytes each, then the bytes. An npz file is a zip archive of npy files.
"""

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from cutaway.data.text import GZIP, XZ, file_size, open_bytes, read_some
from cutaway.errors import InputError
from cutaway.files import MEGABYTE

MOST_OF_ONE = 1 << 28  # bytes of one image
# More than these a byte cannot unpack to: who claims it does not tell the truth.
DENSEST_ZIP, DENSEST = 1032, 8192
NOT_AN_ARRAY = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError)  # also NotImplementedError


@contextmanager
def open_idx(path: Path, n_axes: int) -> Iterator[tuple[tuple[int, ...], Iterator[bytes]]]:
    """The shape of an idx file of bytes, and its bytes in chunks that hold whole items of the first axis."""
    with open_bytes(path) as (file, _):
        head = read_some(file, path, 4)
        if head != bytes([0, 0, 8, n_axes]):
            raise InputError(f"{path} is not an idx file of bytes with {n_axes} axes: it begins with {head.hex(' ')}")
        head = read_some(file, path, 4 * n_axes)
        if len(head) < 4 * n_axes:
            raise InputError(f"{path} is cut short in its header")
        shape = tuple(np.frombuffer(head, ">u4").tolist())
        stated, there = math.prod(shape), file_size(path)
        packed = _is_packed(path)
        if stated > DENSEST * there or (not packed and stated != there - 4 - 4 * n_axes):
            raise InputError(
                f"{path} says that it holds {_times(shape)} bytes, which does not fit its size of {there:,}"
            )
        item = math.prod(shape[1:])

        def chunks() -> Iterator[bytes]:
            left = stated
            while left:
                chunk = read_some(file, path, min(left, _chunk(item, path)))
                left -= len(chunk)
                if not chunk or len(chunk) % item:
                    raise InputError(f"{path} is cut short: {left:,} of the {_times(shape)} bytes are missing")
                yield chunk
            if read_some(file, path, 1):
                raise InputError(f"{path} holds more than the {_times(shape)} bytes that it names")

        yield shape, chunks()


def _is_packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8).startswith((GZIP, XZ))


class Npz:
    """The arrays of an npz archive."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, file_size(path)
        try:
            self.archive = zipfile.ZipFile(path)
        except NOT_AN_ARRAY as error:
            raise InputError(f"{path} is not an npz archive: {error}") from None
        self.names = {name.removesuffix(".npy") for name in self.archive.namelist()}

    def __enter__(self) -> "Npz":
        return self

    def __exit__(self, *error: object) -> None:
        self.archive.close()

    @contextmanager
    def open(self, name: str) -> Iterator["Member"]:
        """One array, whose stated size has been compared with the archive's."""
        if name not in self.names:
            raise InputError(f"{self.path} has no array {name!r}; there are {', '.join(sorted(self.names)) or 'none'}")
        where = f"{name} in {self.path}"
        with ExitStack() as opened:
            try:
                info = self.archive.getinfo(f"{name}.npy")
                file = opened.enter_context(self.archive.open(info))
                member = Member(cast(zipfile.ZipExtFile, file), info, self.size, where)
            except InputError:
                raise
            except (KeyError, *NOT_AN_ARRAY) as error:
                raise InputError(f"{where} cannot be read: {error}") from None
            yield member

    def integers(self, name: str) -> NDArray[np.int64]:
        """A row of whole numbers from 0 up."""
        with self.open(name) as member:
            if len(member.shape) != 1 or member.dtype.kind not in "iu":
                raise InputError(f"{member.where} should be a row of whole numbers, not {member.about}")
            data = b"".join(member.chunks(member.dtype.itemsize))
            numbers = np.frombuffer(data, member.dtype)
            if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < 1 << 62:
                raise InputError(f"{member.where} holds {numbers.min()} … {numbers.max()}; from 0 up is expected")
            return numbers.astype(np.int64)


class Member:
    """An array inside an archive, read from beginning to end."""

    def __init__(self, file: zipfile.ZipExtFile, info: zipfile.ZipInfo, archive_size: int, where: str) -> None:
        self.file, self.where = file, where
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise InputError(f"{where} has the npy version {version}; read are (1, 0) and (2, 0)")
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        self.shape, by_column, self.dtype = read_header(file)
        self.about = f"{self.dtype} of shape {self.shape}"
        if self.dtype.hasobject or (by_column and len(self.shape) > 1) or min(self.shape, default=0) < 0:
            raise InputError(f"{where} is {self.about}; arrays of numbers, row by row, are read")
        self.n_bytes = math.prod(self.shape) * self.dtype.itemsize
        packed = info.compress_size
        if file.tell() + self.n_bytes != info.file_size or not info.file_size <= DENSEST_ZIP * packed <= (
            DENSEST_ZIP * archive_size
        ):
            raise InputError(f"{where} says that it is {self.about}, which does not fit its {packed:,} bytes")

    def chunks(self, item: int) -> Iterator[bytes]:
        """The bytes, in chunks that hold whole items."""
        left = self.n_bytes
        while left:
            chunk = self._read(min(left, _chunk(item, self.where)))
            left -= len(chunk)
            yield chunk

    def parts(self, offsets: NDArray[np.int64]) -> Iterator[bytes]:
        """The bytes from each offset to the next."""
        lengths = np.diff(offsets)
        if not len(lengths) or offsets[0] or offsets[-1] != self.n_bytes or lengths.min() < 1:
            raise InputError(f"the offsets of {self.where} should rise from 0 to {self.n_bytes}")
        for length in lengths.tolist():
            yield self._read(length)

    def _read(self, n: int) -> bytes:
        try:
            data = self.file.read(n)
        except NOT_AN_ARRAY as error:
            raise InputError(f"{self.where} cannot be read: {error}") from None
        if len(data) < n:
            raise InputError(f"{self.where} is cut short")
        return data


def _chunk(item: int, where: object) -> int:
    """As many whole items as make about a megabyte."""
    if item > MOST_OF_ONE:
        raise InputError(f"{where}: an image of {item:,} bytes; at most {MOST_OF_ONE:,} are read")
    return max(1, MEGABYTE // item) * item


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))
