"""GGUF, the layout of llama.cpp: metadata, then tensors that are mostly quantised.

The `gguf` package can dequantise every kind. Its reader trusts the file, though (an array of 2⁶⁰ numbers is read number
by number, past the end), and takes two seconds for a vocabulary; so the header is read here, and every length is
checked against the bytes that are left before anything is allocated.

    magic, version, counts · key, type, value … · name, shape, kind, offset … · padding · data
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cutaway.checkpoints.weight_source import TensorSource
from cutaway.errors import CheckpointError, MissingExtra
from cutaway.files import regular_size

VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = {0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "u4", 5: "i4", 6: "f4", 7: "?", 10: "u8", 11: "i8", 12: "f8"}
PLAIN = {"F64": "f8", "I8": "i1", "I16": "i2", "I32": "i4", "I64": "i8"}  # kinds that need no dequantising, only a cast
MOST_VALUES = 1 << 24  # metadata values in one file; the largest vocabularies need a million
MOST_AXES = 4


@dataclass(frozen=True)
class _Place:
    """Where one tensor is in the file, and of which kind and shape."""

    kind: Any  # gguf.GGMLQuantizationType
    shape: tuple[int, ...]
    start: int
    size: int


class _TensorInfo(NamedTuple):
    """What the header says of one tensor."""

    name: str
    axes: list[int]  # fastest first
    kind: int
    offset: int


class GGUFFile(TensorSource):
    """A GGUF file: `metadata` as plain Python values, tensors as float32."""

    def __init__(self, path: Path) -> None:
        try:
            import gguf
        except ImportError:
            raise MissingExtra("gguf", "gguf") from None
        self._gguf = gguf
        self.path = path
        size = regular_size(path)
        if size < 24:
            raise CheckpointError(f"{path} is too short for a GGUF header: {size} bytes")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            header = _Header(path, mapped)
            self.metadata = header.metadata
            self._places = {info.name: self._place(info, header.data_start, size) for info in header.tensors}
        if len(self._places) < len(header.tensors):
            raise CheckpointError(f"{path}: a tensor name occurs twice")
        self._refuse_overlaps()

    def _place(self, info: _TensorInfo, data_start: int, size: int) -> _Place:
        """Checks the entry of one tensor against the size of the file."""
        name, axes, kind_id, offset = info
        try:
            kind = self._gguf.GGMLQuantizationType(kind_id)
            block, block_bytes = self._gguf.GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            raise CheckpointError(f"{self.path}: {name!r} is of an unknown kind, number {kind_id}") from None
        if not 0 < len(axes) <= MOST_AXES or 0 in axes or axes[0] % block:
            raise CheckpointError(
                f"{self.path}: {name!r} has shape {axes}, which {kind.name} (blocks of {block}) cannot hold"
            )
        n_bytes = prod(axes) // block * block_bytes
        start = data_start + offset
        if start + n_bytes > size:
            raise CheckpointError(f"{self.path}: {name!r} would end at byte {start + n_bytes:,} of a file of {size:,}")
        return _Place(kind, tuple(reversed(axes)), start, n_bytes)

    def _refuse_overlaps(self) -> None:
        ordered = sorted(self._places.items(), key=lambda item: item[1].start)
        for (name, place), (other, following) in pairwise(ordered):
            if place.start + place.size > following.start:
                raise CheckpointError(f"{self.path}: the tensors {name!r} and {other!r} overlap")

    def names(self) -> list[str]:
        return list(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def shape(self, name: str) -> tuple[int, ...]:
        return self._find(name).shape

    def dtype(self, name: str) -> torch.dtype:
        return torch.float32

    def read(self, name: str) -> Tensor:
        """One tensor, dequantised to float32 in memory of its own."""
        target = torch.empty(self.shape(name))
        self.copy_into(name, target)
        return target

    def _read_rows(self, name: str, start: int, stop: int) -> Tensor:
        """Blocks never cross rows of the last axis, so rows of the first axis can be dequantised by themselves.

        A tensor of one axis is one row of blocks: its numbers `start:stop` are cut from the whole."""
        place = self._find(name)
        if len(place.shape) == 1:
            return self._dequantise(place, place.start, (1, place.size))[0, start:stop]
        row_bytes = place.size // place.shape[0]
        inner = place.shape[1:-1]
        shape = (stop - start, *inner, row_bytes // prod(inner))
        return self._dequantise(place, place.start + start * row_bytes, shape)

    def _dequantise(self, place: _Place, offset: int, byte_shape: tuple[int, ...]) -> Tensor:
        data = np.fromfile(self.path, dtype=np.uint8, count=prod(byte_shape), offset=offset)
        if data.size < prod(byte_shape):
            raise CheckpointError(f"{self.path} became shorter while it was read")
        data = data.reshape(byte_shape)
        try:
            if place.kind.name in PLAIN:
                return torch.from_numpy(data.view(PLAIN[place.kind.name]).astype(np.float32))
            return torch.from_numpy(self._gguf.dequantize(data, place.kind))
        except NotImplementedError:
            raise CheckpointError(f"{self.path}: the gguf package cannot dequantise {place.kind.name}") from None

    def _find(self, name: str) -> _Place:
        place = self._places.get(name)
        if place is None:
            raise self._unknown(name)
        return place


class _Header:
    """The part before the data, read front to back; every read goes through `take`, which knows where the file ends."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.at, self.values = path, data, 0, 0
        if self.take(4) != b"GGUF":
            raise self.error("does not begin with 'GGUF'")
        (version,) = self.unpack("<I")
        if version not in VERSIONS:
            order = " (a big-endian file)" if version & 0xFFFF == 0 else ""
            raise self.error(f"is GGUF version {version}{order}; known are {VERSIONS}")
        n_tensors, n_keys = self.unpack("<QQ")
        self.fits(n_tensors, 8 + 4 + 8 + 4 + 8, "tensors")
        self.fits(n_keys, 8 + 4 + 1, "keys")
        self.metadata: dict[str, Any] = {}
        for key, value in (self.pair() for _ in range(n_keys)):
            if key in self.metadata:
                raise self.error(f"has the key {key!r} twice")
            self.metadata[key] = value
        self.tensors = list(self.tensor_infos(n_tensors))
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1) or alignment > 1 << 20:
            raise self.error(f"has general.alignment {alignment!r}, which must be a power of two")
        self.data_start = -(-self.at // alignment) * alignment

    def error(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path} {what} (byte {self.at:,})")

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise self.error(
                f"ends too soon: {size:,} more bytes are announced, {len(self.data) - self.at:,} are there"
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def fits(self, count: int, least: int, what: str) -> None:
        """Refuses a count of items, of at least `least` bytes each, that the rest of the file cannot hold."""
        self.values += count
        if count * least > len(self.data) - self.at or self.values > MOST_VALUES:
            raise self.error(f"announces {count:,} {what}, more than it can hold")

    def string(self) -> str:
        (length,) = self.unpack("<Q")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise self.error("has a string that is not UTF-8") from None

    def pair(self) -> tuple[str, Any]:
        key = self.string()
        (kind,) = self.unpack("<I")
        return key, self.value(kind)

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in SCALARS:
            return self.scalars(kind, 1)[0]
        if kind == STRING:
            return self.string()
        if kind != ARRAY or depth > 2:
            raise self.error(f"has a value of unknown type {kind}" if kind != ARRAY else "nests arrays too deeply")
        item, count = self.unpack("<IQ")
        if item in SCALARS:
            return self.scalars(item, count)
        self.fits(count, 8, "values")
        return [self.value(item, depth + 1) for _ in range(count)]

    def scalars(self, kind: int, count: int) -> list[Any]:
        dtype = np.dtype("<" + SCALARS[kind])
        self.fits(count, dtype.itemsize, "values")
        values: list[Any] = np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
        return values

    def tensor_infos(self, count: int) -> Iterator[_TensorInfo]:
        for _ in range(count):
            name = self.string()
            (n_axes,) = self.unpack("<I")
            if n_axes > MOST_AXES:
                raise self.error(f"gives {name!r} {n_axes:,} axes; at most {MOST_AXES} are known")
            axes = list(self.unpack(f"<{n_axes}Q"))
            kind, offset = self.unpack("<IQ")
            yield _TensorInfo(name, axes, kind, offset)
