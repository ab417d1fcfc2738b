"""What every file of weights offers, whatever its format: names, shapes, and tensors that are read one by one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from cutaway.errors import CheckpointError

CHUNK = 4 << 20  # bytes that `copy_into` buffers: large enough for the disk, small beside any model


class TensorSource(ABC):
    """Named tensors in a file or folder. `read` gives a tensor; `copy_into` fills one that exists."""

    path: Path

    @abstractmethod
    def names(self) -> list[str]:
        """The names, in the order of the file."""

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """The shape in torch's order: the last axis is contiguous."""

    @abstractmethod
    def dtype(self, name: str) -> torch.dtype:
        """The dtype that `read` gives."""

    @abstractmethod
    def read(self, name: str) -> Tensor:
        """One tensor. Where the format allows, a view of the file that costs no memory until it is used."""

    @abstractmethod
    def _read_rows(self, name: str, start: int, stop: int) -> Tensor:
        """Rows `start:stop` of the first axis (of a scalar: the scalar), read into memory of their own."""

    def copy_into(self, name: str, target: Tensor) -> None:
        """Copy a tensor into `target`, a few megabytes at a time; dtype, device and strides are the target's.

        The pages of a mapped file stay resident for as long as the mapping lives, so that a model copied out of one
        would peak at twice its size. Here the file is read through a small buffer instead.
        """
        shape = self.shape(name)
        if shape != tuple(target.shape):
            raise CheckpointError(f"{self.path}: {name!r} has shape {shape}, but {tuple(target.shape)} is wanted")
        with torch.no_grad():
            if not shape or target.numel() == 0:
                target.copy_(self._read_rows(name, 0, shape[0] if shape else 1))
                return
            row_bytes = target[0].numel() * self.dtype(name).itemsize
            step = max(1, CHUNK // row_bytes)
            for start in range(0, shape[0], step):
                stop = min(start + step, shape[0])
                target[start:stop].copy_(self._read_rows(name, start, stop))

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __getitem__(self, name: str) -> Tensor:
        return self.read(name)

    def _unknown(self, name: str) -> CheckpointError:
        """The error for a name that is not in the file."""
        return CheckpointError(f"{self.path} holds no tensor {name!r}; it holds {', '.join(self.names()[:5])}, …")
