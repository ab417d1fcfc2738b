"""Reads models, their configs and their tokenizers, in whatever format they come.

Each format has a module, which is imported when a model of that format is read:

    module         reads                                                        its weights
    model_folder   our own folder: `family` in config.json                      .safetensors
    hf             a Hugging Face folder: `model_type` in config.json           .safetensors
    gguf           a file of llama.cpp                                          .gguf
    llama2c        a file of llama2.c                                           .bin

Each offers `read_config(path)` and `load_model(path, dtype=…, device=…)`; those of files also `read_tokenizer(path)`.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch

from cutaway.arguments import checked
from cutaway.bundled import find
from cutaway.errors import CheckpointError, InputError
from cutaway.files import naming, read_json
from cutaway.folders import finish_replacing
from cutaway.model.config import Config
from cutaway.model.device import usable_device
from cutaway.model.model import Model
from cutaway.model.precision import Precision, with_precision
from cutaway.tokens import Tokenizer, find_tokenizer

FILES = {".gguf": "gguf", ".bin": "llama2c"}
READABLE = "Cutaway reads folders with a config.json, .gguf files and llama2.c's .bin files"
OTHER_FOLDERS = {  # a file in folders that other commands read → what such a folder is
    "ngrams.json": "an n-gram model: cutaway ngram {}",
    "vectors.npy": "word vectors: cutaway embed --model {} --near WORD",
    "compare.json": "a comparison: its models are in {}/models",
}


@checked
def load(
    path: Path | str,
    *,
    precision: Precision | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Model:
    """The model in a folder or file of any format, or a bundled model by name, in evaluation mode (dropout off).

    `precision` is "fp32", "bf16" or "int8", the fastest on a CPU; `dtype` is any floating-point type of the weights.
    """
    path, device = find_model(path), usable_device(device)
    if precision is not None and dtype is not torch.float32:
        raise InputError(f"precision={precision!r} and dtype={dtype} both set the type of the weights: give one")
    if not dtype.is_floating_point:
        raise InputError(f"dtype={dtype} has no fractions: give torch.float32, torch.bfloat16 or torch.float16")
    model: Model = format_of(path).load_model(path, dtype=dtype, device=device).eval()
    return model if precision is None else with_precision(model, precision)


@checked
def load_tokenizer(path: Path | str) -> Tokenizer:
    """The tokenizer of a model, in whatever format it comes."""
    tokenizer = tokenizer_of(path)
    if tokenizer is None:
        raise CheckpointError(f"{path} has no tokenizer")
    return tokenizer


@checked
def tokenizer_of(path: Path | str) -> Tokenizer | None:
    """The tokenizer of a model, or None where it has none."""
    path = find_model(path)
    if path.is_dir():
        return find_tokenizer(path)
    tokenizer: Tokenizer | None = file_format(path).read_tokenizer(path) if path.suffix in FILES else None
    return tokenizer


def read_config(path: Path) -> Config:
    """The config of a model, or in a config.json alone. Of weights only the headers are read."""
    folder = path.parent if path.name == "config.json" and path.is_file() else path
    with naming(path):
        config: Config = format_of(folder).read_config(folder)
        return config


def find_model(path: Path | str) -> Path:
    """A path that exists, or the folder of the model with this name."""
    try:
        return find(path)
    except CheckpointError as error:
        from cutaway.families import sizes

        if str(path) in sizes():
            raise CheckpointError(f"{error} (a size of that name can be built with new weights: build)") from None
        raise


def format_of(path: Path) -> ModuleType:
    """The module that reads a folder or file."""
    finish_replacing(path)
    return _folder_format(path) if path.is_dir() else file_format(path)


def file_format(path: Path) -> ModuleType:
    if path.suffix == ".safetensors":
        raise CheckpointError(f"{path} holds weights alone: give its folder, {path.parent}")
    if path.suffix not in FILES or not path.exists():
        raise CheckpointError(f"{path}: {READABLE}")
    return import_module(f"cutaway.checkpoints.{FILES[path.suffix]}")


def _folder_format(folder: Path) -> ModuleType:
    if not (folder / "config.json").exists():
        if (folder / "run" / "begun.json").exists():
            raise CheckpointError(
                f"{folder} is a training run that has not ended, and holds no model yet: "
                f"`cutaway train … --out {folder} --resume` goes on with it"
            )
        for file, what in OTHER_FOLDERS.items():
            if (folder / file).exists():
                raise CheckpointError(f"{folder} holds {what.format(folder)}")
        raise CheckpointError(f"{folder} has no config.json: {READABLE}")
    name = "model_folder" if "family" in read_json(folder / "config.json") else "hf"
    return import_module(f"cutaway.checkpoints.{name}")
