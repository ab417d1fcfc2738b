"""Where counts lie: arrays by name, in memory or as .npy files of a folder, which are mapped and not read."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.errors import CheckpointError, InputError
from cutaway.files import read_json, write_json
from cutaway.folders import Kind, files_in
from cutaway.npy import open_npy

SCRATCH = ".counting-"  # what a folder of arrays that are needed on the way begins with
FILES = tuple(f"{kind}[1-9].npy" for kind in ("keys", "log_p", "log_weight", "counts", "suffix"))
FILES = (*FILES, "class.npy", "times.npy", "ngrams.json", "counts.json", "classes.json")
NGRAMS = Kind("n-gram model", "ngrams.json", FILES)


def refuse_others(folder: Path) -> None:
    """Refuses a folder with anything but earlier counts."""
    for path in files_in(folder):
        if not NGRAMS.knows(path.name) and not path.name.startswith(SCRATCH):
            raise InputError(f"{folder} has other files ({path.name}): name a folder of its own")


class CountArrays:
    """`CountArrays()` keeps its arrays in memory, `CountArrays(folder)` in files."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def make(self, name: str, dtype: Any, size: int) -> np.ndarray:
        """A new array of this size."""
        if self.folder is None or not size:  # an empty file cannot be mapped
            return self.put(name, np.empty(size, dtype))
        self.drop([name])
        return np.lib.format.open_memmap(self.path(name), "w+", np.dtype(dtype), (size,))

    def put(self, name: str, array: np.ndarray) -> np.ndarray:
        """The array, mapped from its file if there is one."""
        if self.folder is None:
            return array
        self.drop([name])  # not written over: it may be mapped, perhaps by this very array
        np.save(self.path(name), array, allow_pickle=False)
        return self.get(name) if array.size else array

    def get(self, name: str, dtype: Any = None) -> np.ndarray:
        path = self.path(name)
        array = open_npy(path)
        if array.ndim != 1 or (dtype is not None and array.dtype != dtype):
            raise CheckpointError(f"{path} should hold one row of {np.dtype(dtype)}, not {array.dtype} {array.shape}")
        return array

    def done(self, name: str, array: np.ndarray) -> np.ndarray:
        """An array that has been filled, mapped anew, so that its pages no longer count as our memory."""
        return array if self.folder is None else self.get(name)

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            if self.folder is not None:
                self.path(name).unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}.npy"

    def seal(self, name: str, numbers: Mapping[str, Any]) -> None:
        """Writes the JSON file that comes last: without it a folder is incomplete."""
        if self.folder is not None:
            write_json(self.folder / f"{name}.json", numbers)

    def unseal(self, *names: str) -> None:
        """Removes that file before anything is written."""
        for name in names:
            if self.folder is not None:
                (self.folder / f"{name}.json").unlink(missing_ok=True)

    def numbers(self, name: str) -> dict[str, Any]:
        assert self.folder is not None
        return read_json(self.folder / f"{name}.json")
