"""Weights in fewer bits on disk, in 8 with a scale for each row, or in 16.

    W ≈ q ⊙ s        `name` holds q (int8), and `name.scale` holds s (float32, one for each row of W)

How a weight is stored stands in the header of its file, which is read before the weight anyway, and nowhere else: a
word in config.json could contradict it. Vectors (biases, norms) stay as they are: they are few.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from cutaway.checkpoints.agreement import Agreement, compare_answers
from cutaway.checkpoints.tensors import TensorFile
from cutaway.checkpoints.weight_source import TensorSource
from cutaway.errors import CheckpointError, InputError
from cutaway.model.kernels.int8 import rounded
from cutaway.model.model import Model

STORES = {"int8": "int8", "bf16": "bfloat16"}  # what people say → torch's name
SCALE = ".scale"
GROSS = 0.5  # of the largest number: beyond that something is wrong; below, the figure says what rounding costs
NARROW = 16  # a row of fewer numbers would save little beside its scale


def pack_tensors(tensors: Mapping[str, Tensor], store: str) -> dict[str, Tensor]:
    """The same names, matrices in fewer bits; with int8 also the scales."""
    if store not in STORES:
        raise InputError(f"store={store!r} is not one of {', '.join(STORES)}")
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.ndim != 2 or tensor.shape[1] < NARROW:
            found[name] = tensor
        elif store == "bf16":
            found[name] = tensor.to(torch.bfloat16)
        else:
            found[name], found[name + SCALE] = _, scale = rounded(tensor)
            if not (127 * scale).isfinite().all():
                raise CheckpointError(f"{name!r} holds a number that is not finite: 8 bits cannot say it")
    return found


class Unpacked(TensorSource):
    """The tensors of a file as a model reads them: a matrix in 8 bits is one in single precision, exactly q ⊙ s."""

    def __init__(self, packed: TensorFile) -> None:
        self.path, self._packed = packed.path, packed
        self._scales = {name: name + SCALE for name in packed.names() if packed.dtype(name) is torch.int8}
        for name, scale in self._scales.items():
            shape = packed.shape(name)
            if scale not in packed:
                raise CheckpointError(f"{self.path}: {name!r} is stored in 8 bits, and {scale!r} is not there")
            if len(shape) != 2 or packed.shape(scale) != shape[:1] or packed.dtype(scale) != torch.float32:
                raise CheckpointError(
                    f"{self.path}: {scale!r}, {packed.dtype(scale)} of shape {packed.shape(scale)}, is no scale for "
                    f"each row of {name!r}, of shape {shape}"
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


@torch.no_grad()
def measure_packed(model: Model, packed: Model, store: str) -> Agreement:
    """What the rounding costs: both models on the same random inputs."""
    from cutaway.checkpoints.to_onnx import SHAPES, example, graphs_of  # what a model reads; slow to import

    pairs = []
    for ours, theirs in zip(graphs_of(model), graphs_of(packed), strict=True):
        for shape in SHAPES:
            args = example(model, ours, *shape)
            pairs.append((ours.part(*args), theirs.part(*args)))
    return compare_answers(f"weights in {store}", STORES[store], "numbers", pairs, GROSS)


def carried(source: Path) -> list[Path]:
    """What a packed model takes along from its folder: card, licence, and the recipe, by whose rule it reads texts."""
    return [file for name in ("README.md", "LICENSE", "recipe.toml") if (file := source / name).is_file()]
