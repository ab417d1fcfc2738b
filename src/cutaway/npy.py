"""Arrays as numpy saves them (.npy), written by others: numbers alone, no larger than their file, nothing that runs.

A header is read here, not by numpy, whose reader asks for all the memory that a header names, takes arrays of Python
objects for something to unpickle, and raises half a dozen kinds of errors.

    b"\\x93NUMPY" major minor, the header's length, {'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }, numbers
"""

import ast
import re
from io import BufferedIOBase
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cutaway.errors import CheckpointError
from cutaway.files import damage, regular_size

MAGIC = b"\x93NUMPY"
MOST_HEADER = 10_000  # bytes; numpy reads no more either
MOST_AXES = 32
NUMBERS = re.compile(r"[<>|=]?(\?|b1|[iu][1248]|f[248]|c8|c16)")


class Header(NamedTuple):
    """What a file says of its array."""

    shape: tuple[int, ...]
    dtype: np.dtype
    by_column: bool  # Fortran's order

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}" + (", column by column" if self.by_column else "")

    @property
    def n_bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def read_header(file: BufferedIOBase, where: object) -> Header:
    """The header; the numbers come next."""
    with damage(where, "cannot be read"):
        start = file.read(8)
        if len(start) < 8 or not start.startswith(MAGIC):
            raise CheckpointError(f"{where} cannot be read: it does not begin as arrays of numpy do, with \\x93NUMPY")
        if start[6:] not in (b"\1\0", b"\2\0", b"\3\0"):
            raise CheckpointError(f"{where} has the npy version {start[6]}.{start[7]}; read are 1.0, 2.0 and 3.0")
        length = int.from_bytes(file.read(2 if start[6] == 1 else 4), "little")
        text = file.read(min(length, MOST_HEADER + 1)).decode("latin-1")
        if length > MOST_HEADER or len(text) < length:
            raise CheckpointError(f"{where} is cut short or damaged: its header should have {length:,} bytes")
        match ast.literal_eval(text.strip()):
            case {"descr": str(kind), "fortran_order": bool(by_column), "shape": tuple(shape), **rest} if not rest:
                if not NUMBERS.fullmatch(kind):
                    raise CheckpointError(f"{where} holds {kind!r}; arrays of numbers are read")
                if len(shape) <= MOST_AXES and all(type(side) is int and side >= 0 for side in shape):
                    return Header(shape, np.dtype(kind), by_column and len(shape) > 1)
        raise CheckpointError(f"{where} has no header of arrays of numbers (dtype, order, shape): {text.strip()[:200]}")


def open_npy(path: Path) -> NDArray[Any]:
    """The array in a file, mapped: it is read from the disk where it is touched, and cannot be written to."""
    size = regular_size(path)
    with damage(path, "cannot be read"):
        with path.open("rb") as file:
            header, start = read_header(file, path), file.tell()
        if start + header.n_bytes != size:
            raise CheckpointError(f"{path} says that it is {header}, which does not fit its {size:,} bytes")
        if not header.n_bytes:
            return np.zeros(header.shape, header.dtype)  # nothing cannot be mapped
        return np.memmap(path, header.dtype, "r", start, header.shape, "F" if header.by_column else "C")
