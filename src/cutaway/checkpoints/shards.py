"""Weights in several files of a bounded size, and an index of which is where, named as Hugging Face names them."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from cutaway.checkpoints.tensors import INDEX, SINGLE, write_tensors
from cutaway.errors import InputError
from cutaway.files import write_json


def write_shards(
    folder: Path, tensors: Mapping[str, Tensor], shard_size: int, metadata: Mapping[str, str] | None = None
) -> None:
    """Files of at most `shard_size` bytes of tensors; a larger tensor gets its own file. One file needs no index."""
    if shard_size < 1:
        raise InputError(f"shard_size={shard_size} must be at least 1 byte")
    shards: list[dict[str, Tensor]] = [{}]
    for name, tensor in tensors.items():
        if shards[-1] and sum(other.nbytes for other in shards[-1].values()) + tensor.nbytes > shard_size:
            shards.append({})
        shards[-1][name] = tensor
    if len(shards) == 1:
        write_tensors(folder / SINGLE, tensors, metadata)
        return
    files = {f"model-{n:05d}-of-{len(shards):05d}.safetensors": shard for n, shard in enumerate(shards, 1)}
    for file, shard in files.items():
        write_tensors(folder / file, shard, metadata)
    total = {"total_size": sum(tensor.nbytes for tensor in tensors.values())}
    write_json(
        folder / INDEX, {"metadata": total, "weight_map": {name: file for file in files for name in files[file]}}
    )
