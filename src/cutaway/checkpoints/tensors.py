"""Safetensors in and out: the only layout of weights that Cutaway writes.

A file is 8 bytes that give the length of a JSON header, the header (name → dtype, shape, place), then the numbers.
Nothing in it can run, unlike a pickle. The `safetensors` library checks the header before anything is allocated
(lengths, holes, overlaps, overflow, the size of the file); here its errors become `CheckpointError` with the file's
name, and two things that it lets pass are refused: a name that stands twice, and a dtype that has no tensor.

The library begins the numbers at a multiple of 8 bytes; here they are written at multiples of 64, so that they can be
used where they lie. BLAS adds up in another order elsewhere, and the last bits would not be those of the saved model.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cutaway.checkpoints.weight_source import TensorSource
from cutaway.errors import CheckpointError
from cutaway.files import parse_json, plain_child, read_json, regular_size, replacing

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
ALIGNMENT = 64  # bytes: where torch's own memory begins, and what vector units load at once
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


@dataclass(frozen=True)
class _Place:
    """Where one tensor lies in its file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


class _Shard:
    """One .safetensors file whose header has been checked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = regular_size(path)
        if path.suffix in PICKLES:
            raise _pickle(path)
        try:
            self.mapped: Any = safe_open(path, framework="pt")  # maps the file; pages are read when they are looked at
            header_size, header = _read_header(path)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is not a sound safetensors file: {seems_to_be(path) or error}") from None
        self.metadata: dict[str, str] = header.pop("__metadata__", None) or {}
        self.places = {name: self._place(name, entry, 8 + header_size) for name, entry in header.items()}

    def _place(self, name: str, entry: dict[str, Any], data_start: int) -> _Place:
        dtype = DTYPES.get(entry["dtype"])
        if dtype is None:
            raise CheckpointError(f"{self.path}: {name!r} has dtype {entry['dtype']}; known are {', '.join(DTYPES)}")
        start, stop = entry["data_offsets"]
        return _Place(dtype, tuple(entry["shape"]), data_start + start, data_start + stop)

    def read_into(self, target: Tensor, offset: int) -> None:
        """Fill a contiguous tensor without mapping the file, so that no page of it stays with this process."""
        if not target.numel():
            return
        rest = _numbers(target)
        with self.path.open("rb", buffering=0) as file:
            file.seek(offset)
            while rest:
                got = file.readinto(rest)
                if not got:
                    raise CheckpointError(f"{self.path} became shorter while it was read")
                rest = rest[got:]


class TensorFile(TensorSource):
    """The tensors of one .safetensors file, or of all shards of a folder, as one mapping from name to tensor."""

    def __init__(self, path: Path, shards: list[Path]) -> None:
        self.path = path
        self.metadata: dict[str, str] = {}
        self._shard_of: dict[str, _Shard] = {}
        for shard in map(_Shard, shards):
            self.metadata.update(shard.metadata)
            for name in shard.places:
                if name in self._shard_of:
                    raise CheckpointError(f"{name!r} stands in {shard.path} and in {self._shard_of[name].path}")
                self._shard_of[name] = shard

    def names(self) -> list[str]:
        return list(self._shard_of)

    def __contains__(self, name: object) -> bool:
        return name in self._shard_of

    def shape(self, name: str) -> tuple[int, ...]:
        return self._find(name)[1].shape

    def dtype(self, name: str) -> torch.dtype:
        return self._find(name)[1].dtype

    def read(self, name: str, copy: bool = False) -> Tensor:
        """A view of the mapped file, or with `copy` memory of its own.

        Pages that were looked at stay resident until the TensorFile and its views are gone: use `copy_into` to fill a
        whole model."""
        shard, place = self._find(name)
        if copy:
            target = torch.empty(place.shape, dtype=place.dtype)
            self.copy_into(name, target)
            return target
        tensor: Tensor = shard.mapped.get_tensor(name)
        return tensor

    def copy_into(self, name: str, target: Tensor) -> None:
        """As for every source; a target that is laid out as the file is filled by the disk itself."""
        shard, place = self._find(name)
        same = tuple(target.shape) == place.shape and target.dtype == place.dtype
        if same and target.device.type == "cpu" and target.is_contiguous():
            shard.read_into(target, place.start)
        else:
            super().copy_into(name, target)

    def _read_rows(self, name: str, start: int, stop: int) -> Tensor:
        shard, place = self._find(name)
        rows = torch.empty((stop - start, *place.shape[1:]) if place.shape else (), dtype=place.dtype)
        shard.read_into(rows, place.start + start * (rows.nbytes // max(1, stop - start)))
        return rows

    def _find(self, name: str) -> tuple[_Shard, _Place]:
        shard = self._shard_of.get(name)
        if shard is None:
            raise self._unknown(name)
        return shard, shard.places[name]


def open_tensors(path: Path) -> TensorFile:
    """Open a .safetensors file, an index of shards, or a folder with either; only headers are read."""
    if path.is_dir():
        if (path / SINGLE).exists():
            return TensorFile(path, [path / SINGLE])
        if not (path / INDEX).exists():
            raise _no_weights(path)
        path = path / INDEX
    if path.suffix == ".json":
        return _open_shards(path)
    return TensorFile(path, [path])


def _open_shards(index: Path) -> TensorFile:
    """The shards that an index names, each of which must hold exactly what the index says."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise CheckpointError(f"{index} has no 'weight_map' from tensor names to shard names")
    shards = [plain_child(index.parent, shard) for shard in sorted(set(weight_map.values()))]
    tensors = TensorFile(index.parent, shards)
    for name in weight_map.keys() ^ set(tensors.names()):
        place = "the index names it" if name in weight_map else "a shard holds it"
        raise CheckpointError(f"{index} and its shards disagree on {name!r}: only {place}")
    for name, shard in weight_map.items():
        if tensors._shard_of[name].path.name != shard:
            raise CheckpointError(f"{index} says that {name!r} is in {shard}, but it is in another shard")
    return tensors


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a .safetensors file that is whole or absent; of tied tensors the caller passes one."""
    _refuse_shared(path, tensors)
    for name, tensor in tensors.items():
        if tensor.dtype not in NAMES:
            raise CheckpointError(f"{path}: {name!r} is of {tensor.dtype}; written are {', '.join(map(str, NAMES))}")
    # A file has no holes: behind the first tensor of an odd size nothing lies at a round place, so those come last.
    ordered = dict(sorted(tensors.items(), key=lambda item: (item[1].nbytes % ALIGNMENT > 0, -item[1].itemsize)))
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(_header(ordered, metadata))
        for tensor in ordered.values():
            file.write(_numbers(tensor.detach().cpu().contiguous()))


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> bytes:
    """The length, the names and places of tensors that follow each other, and spaces up to a round place."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, tensor in tensors.items():
        places = [at, at := at + tensor.nbytes]
        entries[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": places}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _numbers(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor, as bytes."""
    numbers: Any = tensor.detach().view(-1).view(torch.uint8).numpy()
    return memoryview(numbers)


def _refuse_shared(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Two names for the same memory would be two tensors after loading: say which is tied to which instead."""
    ends: list[tuple[str, int, int, str]] = []
    for name, tensor in tensors.items():
        if tensor.is_meta:
            raise CheckpointError(f"{path}: {name!r} is on the meta device and has no numbers to write")
        if tensor.numel():
            # A strided view is copied before it is written; only its first number can tell what it is tied to.
            length = tensor.nbytes if tensor.is_contiguous() else tensor.element_size()
            ends.append((str(tensor.device), tensor.data_ptr(), tensor.data_ptr() + length, name))
    ends.sort()
    for (device, _, stop, name), (other_device, start, _, other) in pairwise(ends):
        if device == other_device and start < stop:
            raise CheckpointError(f"{path}: {name!r} and {other!r} share memory: pass one of them")


def _read_header(path: Path) -> tuple[int, dict[str, Any]]:
    """The length and the entries of a header that the library has found sound."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return size, parse_json(file.read(size), f"the header of {path}")


def seems_to_be(path: Path) -> str | None:
    """What a file that is not safetensors probably is, by its first bytes; nothing in it is run or unpacked."""
    with path.open("rb") as file:
        head = file.read(512)
    kinds = {
        b"PK\x03\x04": "it seems to be a zip archive, which is how torch.save writes pickles",
        b"\x1f\x8b": "it seems to be gzipped",
        b"GGUF": "it seems to be GGUF: name it .gguf",
        b"\x89HDF": "it seems to be HDF5 (Keras)",
        b"version https://git-lfs": "it is a Git LFS pointer: fetch the file itself with `git lfs pull`",
    }
    for magic, kind in kinds.items():
        if head.startswith(magic):
            return kind
    if len(head) > 1 and head[0] == 0x80 and head[1] <= 5:
        return "it seems to be a pickle, which could run code when read"
    if head[257:262] == b"ustar":
        return "it seems to be a tar archive"
    return "it is empty" if not head else None


def _pickle(path: Path) -> CheckpointError:
    """The error for a pickle, with the way out."""
    return CheckpointError(
        f"{path.name} is a pickle, which can run code when it is read, so it is not read here. Convert it once, if you "
        f"trust it: python -c \"import torch, safetensors.torch as s; w = torch.load('{path.name}', weights_only=True)"
        "; s.save_file({k: v.clone().contiguous() for k, v in w.items()}, 'model.safetensors')\""
    )


def _no_weights(folder: Path) -> CheckpointError:
    """The error for a folder without safetensors, with the fix where there are weights of another kind."""
    for file in sorted(folder.iterdir()):
        if file.suffix in PICKLES:
            return _pickle(file)
    return CheckpointError(f"{folder} holds no {SINGLE} and no {INDEX}")
