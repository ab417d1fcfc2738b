"""A model folder of our own: config.json (family and numbers), model.safetensors, tokenizer.json, README.md."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutaway.checkpoints.layout import give_weights, native, read_weights
from cutaway.checkpoints.packed import UnpackedTensors, pack_tensors
from cutaway.checkpoints.tensors import INDEX, SINGLE, open_tensors, write_tensors
from cutaway.errors import CheckpointError, InputError
from cutaway.families import bare, config_from_dict
from cutaway.files import naming, read_json, write_json
from cutaway.model.config import Config
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer


def read_config(folder: Path) -> Config:
    with naming(folder / "config.json"):
        return config_from_dict(read_json(folder / "config.json"))


def load_model(folder: Path, *, dtype: torch.dtype, device: torch.device | str) -> Model:
    config = read_config(folder)
    with naming(folder / "config.json"):
        model = bare(config)
    return read_weights(model, native(model), UnpackedTensors(open_tensors(folder)), dtype=dtype, device=device)


def save_folder(
    model: Model, folder: Path, tokenizer: Tokenizer | None, *, store: str | None = None, shard_size: int | None = None
) -> None:
    weights = give_weights(model, native(model))
    weights = weights if store is None else pack_tensors(weights, store)
    write_folder(folder, model.config.to_dict(), weights, tokenizer, shard_size=shard_size)


def write_folder(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer | None,
    metadata: Mapping[str, str] | None = None,
    extra: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    shard_size: int | None = None,
) -> None:
    """Writes into a new folder, which `replacing_folder` puts in place. `extra` are further JSON files by name."""
    check_vocabulary(tokenizer, config.get("vocab_size", 0))
    if shard_size is None:
        write_tensors(folder / SINGLE, tensors, metadata)
    else:
        write_shards(folder, tensors, shard_size, metadata)
    if tokenizer is not None:
        tokenizer.write(folder)
    for name, values in {**(extra or {}), "config.json": config}.items():
        write_json(folder / name, values)


def write_shards(
    folder: Path, tensors: Mapping[str, Tensor], shard_size: int, metadata: Mapping[str, str] | None = None
) -> None:
    """Writes files of at most `shard_size` bytes of tensors; a larger tensor gets its own file.

    Their names, and the index of which tensor is where, are Hugging Face's. One file needs no index.
    """
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


def check_vocabulary(tokenizer: Tokenizer | None, vocab_size: int) -> None:
    """Refuses a tokenizer with more tokens than the model. Fewer are fine, since vocabularies are often padded."""
    if tokenizer is not None and tokenizer.vocab_size > vocab_size:
        raise CheckpointError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, but the model knows {vocab_size}: it seems to belong to "
            "another model"
        )
