"""The fp32 files of Karpathy's llama2.c: seven integers, then every weight in a fixed order, without names.

Version 0 (stories15M and its siblings) also stores tables of the rotary angles, which are skipped; version 1 begins
with 'ak42' and a header of 256 bytes. Version 2 is quantised and refused. The sizes follow from the seven integers, so
a file of any other length is refused before it is mapped.
"""

import struct
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cutaway.checkpoints.weight_source import TensorSource
from cutaway.errors import CheckpointError
from cutaway.files import regular_size

MAGIC = 0x616B3432  # 'ak42'
FIELDS = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len")
MOST = 1 << 24  # far above any field of a real model


class Llama2cFile(TensorSource):
    """A llama2.c file. The names are llama2.c's, with the number of the layer: `wq.0`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        size = regular_size(path)
        if size < 28:
            raise CheckpointError(f"{path} is too short for a llama2.c model: {size:,} bytes")
        with path.open("rb") as file:
            head = file.read(256)
        self.version, at, self.config, self.tied = _read_header(path, head)
        shapes = _shapes(self.config, self.tied, self.version)
        needed = at + 4 * sum(prod(shape) for shape in shapes.values())
        if needed != size:
            raise CheckpointError(
                f"{path}: a llama2.c model with {self.config} takes {needed:,} bytes, but there are {size:,}"
            )
        layered = _layered(self.config)
        self._places: dict[str, tuple[int, tuple[int, ...]]] = {}
        for name, shape in shapes.items():
            if name in layered:
                for layer in range(shape[0]):
                    self._places[f"{name}.{layer}"] = (at + 4 * layer * prod(shape[1:]), shape[1:])
            elif not name.startswith("freq_cis"):  # angles that follow from the positions
                self._places[name] = (at, shape)
            at += 4 * prod(shape)

    def names(self) -> list[str]:
        return list(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def shape(self, name: str) -> tuple[int, ...]:
        return self._find(name)[1]

    def dtype(self, name: str) -> torch.dtype:
        return torch.float32

    def read(self, name: str) -> Tensor:
        """A view of the mapped file; writing to it changes neither the file nor other views."""
        at, shape = self._find(name)
        return torch.from_numpy(np.memmap(self.path, dtype="<f4", mode="c", offset=at, shape=shape))

    def _read_rows(self, name: str, start: int, stop: int) -> Tensor:
        at, shape = self._find(name)
        row = prod(shape[1:])
        numbers = np.fromfile(self.path, dtype="<f4", count=(stop - start) * row, offset=at + 4 * start * row)
        if numbers.size < (stop - start) * row:
            raise CheckpointError(f"{self.path} became shorter while it was read")
        return torch.from_numpy(numbers).view(stop - start, *shape[1:])

    def _find(self, name: str) -> tuple[int, tuple[int, ...]]:
        if name not in self._places:
            raise self._unknown(name)
        return self._places[name]


def _read_header(path: Path, head: bytes) -> tuple[int, int, dict[str, int], bool]:
    """Version, length of the header, the seven integers, and whether the output is tied to the embedding."""
    (magic,) = struct.unpack_from("<I", head)
    if magic == MAGIC:
        version = struct.unpack_from("<i", head, 4)[0]
        if version != 1 or len(head) < 256:
            raise CheckpointError(f"{path} is llama2.c version {version}; supported are 0 and 1 (2 is quantised)")
        config = dict(zip(FIELDS, struct.unpack_from("<7i", head, 8), strict=True))
        header_bytes, tied = 256, bool(head[36])
    else:
        version, header_bytes = 0, 28
        config = dict(zip(FIELDS, struct.unpack_from("<7i", head), strict=True))
        tied = config["vocab_size"] > 0  # in version 0 a minus sign means untied
        config["vocab_size"] = abs(config["vocab_size"])
    sound = all(0 < number <= MOST for number in config.values())
    if not sound or config["dim"] % config["n_heads"] or config["n_heads"] % config["n_kv_heads"]:
        raise CheckpointError(f"{path} is not a llama2.c file: its header would mean {config}")
    return version, header_bytes, config, tied


def _layered(config: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """The weights that every layer has, in torch's order (outputs, inputs), each stacked over the layers."""
    dim, hidden, layers = config["dim"], config["hidden_dim"], config["n_layers"]
    kv_dim = dim // config["n_heads"] * config["n_kv_heads"]
    return {
        "rms_att_weight": (layers, dim),
        "wq": (layers, dim, dim),
        "wk": (layers, kv_dim, dim),
        "wv": (layers, kv_dim, dim),
        "wo": (layers, dim, dim),
        "rms_ffn_weight": (layers, dim),
        "w1": (layers, hidden, dim),
        "w2": (layers, dim, hidden),
        "w3": (layers, hidden, dim),
    }


def _shapes(config: dict[str, int], tied: bool, version: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of the file, in its order."""
    embedding = {"token_embedding_table": (config["vocab_size"], config["dim"])}
    output = {} if tied else {"wcls": (config["vocab_size"], config["dim"])}
    layered = _layered(config)
    if version == 0:
        half = config["dim"] // config["n_heads"] // 2
        angles = {f"freq_cis_{part}": (config["seq_len"], half) for part in ("real", "imag")}
        return {**embedding, **layered, "rms_final_weight": (config["dim"],), **angles, **output}
    norms = {name: layered.pop(name) for name in ("rms_att_weight", "rms_ffn_weight")}
    return {**norms, "rms_final_weight": (config["dim"],), **embedding, **layered, **output}
