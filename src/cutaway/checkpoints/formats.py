"""The formats that models come in, one module each, imported when a model of that format is read.

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

from cutaway.errors import CheckpointError
from cutaway.files import read_json
from cutaway.folders import finish_replacing

FILES = {".gguf": "gguf", ".bin": "llama2c"}
READABLE = "Cutaway reads folders with a config.json, .gguf files and llama2.c's .bin files"
OTHER_FOLDERS = {  # a file in folders that other commands read → what such a folder is
    "ngrams.json": "an n-gram model: cutaway ngram {}",
    "vectors.npy": "word vectors: cutaway embed --model {} --near WORD",
    "compare.json": "a comparison: its models are in {}/models",
}


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
