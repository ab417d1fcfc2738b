"""A cache of what was read from files: folders of arrays, keyed by the content of the files.

    entry = cached([path], {"kind": "documents", "split": "line"}, build)

`build(folder)` writes its files into the folder that it is given, and returns facts for `meta.json`.

An entry is whole or absent (`folders.whole_folder`). `meta.json` has a checksum of each file. They are compared each
time an entry is opened, so that an entry that a disk has damaged is built again and not trained on.
"""

import hashlib
import json
import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.data.text_files import file_size
from cutaway.errors import CheckpointError, InputError
from cutaway.files import MEGABYTE, held, read_json, remove_left, write_json
from cutaway.folders import whole_folder

FORMAT = 1  # of the entries; a higher number leaves all older ones behind
META = "meta.json"
LEFT = re.compile(r"\.[0-9a-f]{64}\.[0-9a-f]{32}\.tmp")  # hidden folders of killed builders
CHUNK = 4 * MEGABYTE  # bytes of a checksum's chunk

Array = NDArray[Any]
Build = Callable[[Path], Mapping[str, Any]]

_note: ContextVar[Callable[[str], None]] = ContextVar("_note", default=warnings.warn)


@contextmanager
def notes_to(note: Callable[[str], None]) -> Iterator[None]:
    """Within, a damaged entry is reported to `note`; elsewhere it is a warning."""
    token = _note.set(note)
    try:
        yield
    finally:
        _note.reset(token)


def data_cache_folder() -> Path:
    """Where entries live: `$CUTAWAY_CACHE/data`, or `~/.cache/cutaway/data`."""
    return Path(os.environ.get("CUTAWAY_CACHE") or Path.home() / ".cache" / "cutaway") / "data"


def content_key(paths: Sequence[Path], settings: Mapping[str, Any]) -> str:
    """SHA-256 of what is in the files, in their order, and of how they are read; names and dates do not count."""
    whole = hashlib.sha256(json.dumps({"format": FORMAT, "files": len(paths), **settings}, sort_keys=True).encode())
    for path in paths:
        file_size(path)  # refuses what is not a file
        try:
            with path.open("rb") as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
    return whole.hexdigest()


def cached(paths: Sequence[Path], settings: Mapping[str, Any], build: Build, cache: Path | None = None) -> Path:
    """The folder of the entry that `build` makes of these files, built where it is absent or damaged.

    Its name is the key. While one process builds an entry, others that want the same wait for it.
    """
    parent = cache or data_cache_folder()
    stamps = _stamps(paths)
    entry = parent / content_key(paths, settings)
    fault = fault_of(entry)
    if fault is None:
        return entry

    def build_of_unchanged(folder: Path) -> Mapping[str, Any]:
        said = build(folder)
        for path, before, after in zip(paths, stamps, _stamps(paths), strict=True):
            if before != after:  # the key would tell of other bytes than the entry
                raise InputError(f"{path} changed while it was read; start again when it is complete")
        return said

    try:
        parent.mkdir(parents=True, exist_ok=True)
        with _locked(parent, entry.name):
            fault = fault_of(entry)
            if fault is not None:  # the process that we waited for may have built it
                if fault:
                    _note.get()(f"the cache is damaged and is built again: {fault}")
                _remove_left(parent)
                _build(entry, build_of_unchanged)
    except OSError as error:
        raise InputError(
            f"the cache {parent} cannot be written: {error.strerror or error}; "
            "make room, or set CUTAWAY_CACHE to another folder"
        ) from error
    return entry


def fault_of(entry: Path) -> str | None:
    """Why an entry cannot be used: None if it is whole, "" if there is none yet, or only one without checksums."""
    if not entry.exists():
        return ""
    try:
        meta = read_json(entry / META)
        files = meta["files"]
        if "sum" not in meta and all(isinstance(size, int) for size in files.values()):
            return ""  # made before there were checksums
        if meta["sum"] != _sum_of({"files": files, "facts": meta["facts"]}):
            return f"{entry / META} does not fit its checksum"
        for name, checksum in files.items():
            if checksum_of(entry / name) != checksum:
                return f"{entry / name} does not fit its checksum"
    except OSError as error:
        return f"{error.filename or entry} cannot be read: {error.strerror or error}"
    except (CheckpointError, KeyError, AttributeError, TypeError, ValueError) as error:
        return str(error) if isinstance(error, CheckpointError) else f"{entry / META} is not what was written"
    return None


def checksum_of(path: Path) -> str:
    """CRC-32 of each chunk of a file, and the CRC-32 of these: made on all cores, at the speed of the disk.

    It is meant to find damage, for which it is as good as a slow hash; nobody would gain anything by forging it.
    """

    def of_chunk(start: int) -> int:
        return zlib.crc32(os.pread(file.fileno(), CHUNK, start))

    with path.open("rb") as file:
        starts = range(0, os.fstat(file.fileno()).st_size, CHUNK)
        if len(starts) < 2:
            return _hex(map(of_chunk, starts))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return _hex(pool.map(of_chunk, starts))


def _hex(sums: Iterable[int]) -> str:
    return f"{zlib.crc32(b''.join(number.to_bytes(4, 'little') for number in sums)):08x}"


def _sum_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def facts(entry: Path) -> dict[str, Any]:
    """What the builder of an entry returned."""
    result: dict[str, Any] = read_json(entry / META)["facts"]
    return result


def open_array(path: Path, dtype: str, shape: tuple[int, ...]) -> Array:
    """A file as a read-only memory-mapped array."""
    if 0 in shape:
        return np.zeros(shape, dtype)  # an empty file cannot be mapped
    return np.asarray(np.memmap(path, dtype, "r", shape=shape))


def _build(entry: Path, build: Build) -> None:
    try:
        with whole_folder(entry) as folder:  # who has mapped a damaged entry keeps what was mapped
            said = dict(build(folder))
            sums = {file.name: checksum_of(file) for file in sorted(folder.iterdir())}
            meta = json.loads(json.dumps({"files": sums, "facts": said}))  # lists for tuples, as they will be read
            write_json(folder / META, {**meta, "sum": _sum_of(meta)})
    except OSError:  # without locks, another process may have been faster
        if fault_of(entry) is not None:
            raise


def _remove_left(parent: Path) -> None:
    """Removes what killed builders left."""
    for path in parent.iterdir():
        if LEFT.fullmatch(path.name):
            remove_left(path)


@contextmanager
def _locked(parent: Path, key: str) -> Iterator[None]:
    """One process at a time builds an entry; others wait."""
    lock = parent / f".{key}.lock"
    lock.touch()
    with held(lock):
        yield


def _stamps(paths: Sequence[Path]) -> list[tuple[int, int]]:
    return [(file_size(path), path.stat().st_mtime_ns) for path in paths]
