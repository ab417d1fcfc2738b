"""Weights in fewer bits on disk: in 8, with a scale for each row, or in 16.

    W ≈ q ⊙ s        `name` holds q (int8), and `name.scale` holds s (float32, one for each row of W)

The type of each stored tensor is in the header of its file and nowhere else: config.json could contradict it. Vectors
(biases, norms) are not rounded, because they are small.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from cutaway.checkpoints.tensors import TensorFile
from cutaway.checkpoints.weight_source import TensorSource
from cutaway.errors import CheckpointError, InputError
from cutaway.model.kernels.int8 import rounded

STORES = {"int8": "int8", "bf16": "bfloat16"}  # → torch's name
SCALE = ".scale"
NARROW = 16  # packing shorter rows would save little, since each needs a scale


def pack_tensors(tensors: Mapping[str, Tensor], store: str) -> dict[str, Tensor]:
    """The same tensors, matrices in fewer bits, and with int8 their scales."""
    if store not in STORES:
        raise InputError(f"store={store!r} is not one of {', '.join(STORES)}")
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.ndim != 2 or tensor.shape[1] < NARROW:
            packed[name] = tensor
        elif store == "bf16":
            packed[name] = tensor.to(torch.bfloat16)
        else:
            packed[name], packed[name + SCALE] = _, scale = rounded(tensor)
            if not (127 * scale).isfinite().all():
                raise CheckpointError(f"{name!r} has a number that is not finite, which 8 bits cannot represent")
    return packed


class UnpackedTensors(TensorSource):
    """The tensors of a file as a model reads them: a matrix in 8 bits becomes exactly q ⊙ s in single precision."""

    def __init__(self, packed: TensorFile) -> None:
        self.path, self._packed = packed.path, packed
        self._scales = {name: name + SCALE for name in packed.names() if packed.dtype(name) is torch.int8}
        for name, scale in self._scales.items():
            shape = packed.shape(name)
            if scale not in packed:
                raise CheckpointError(f"{self.path}: {name!r} is stored in 8 bits, but {scale!r} is missing")
            if len(shape) != 2 or packed.shape(scale) != shape[:1] or packed.dtype(scale) != torch.float32:
                raise CheckpointError(
                    f"{self.path}: {scale!r}, {packed.dtype(scale)} of shape {packed.shape(scale)}, is not "
                    f"one scale for each row of {name!r}, of shape {shape}"
                )

    def names(self) -> list[str]:
        scales = set(self._scales.values())
        return [name for name in self._packed.names() if name not in scales]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._packed.shape(name)

    def dtype(self, name: str) -> torch.dtype:
        return torch.float32 if name in self._scales else self._packed.dtype(name)

    def read(self, name: str) -> Tensor:
        return self._read_rows(name, 0, self.shape(name)[0]) if name in self._scales else self._packed.read(name)

    def copy_into(self, name: str, target: Tensor) -> None:
        super().copy_into(name, target) if name in self._scales else self._packed.copy_into(name, target)

    def _read_rows(self, name: str, start: int, stop: int) -> Tensor:
        rows = self._packed._read_rows(name, start, stop)
        if name in self._scales:
            return rows.float().mul_(self._packed._read_rows(self._scales[name], start, stop)[:, None])
        return rows
