"""The config of a model on disk, without its weights: what it is before anything is allocated."""

from pathlib import Path

from cutaway.checkpoints import gguf, hf, llama2c
from cutaway.checkpoints.gguf_file import GGUFFile
from cutaway.errors import CheckpointError
from cutaway.families import config_from_dict
from cutaway.files import naming, read_json
from cutaway.folders import finish_replacing
from cutaway.model.config import Config

READABLE = "Cutaway reads folders with a config.json, .gguf files and llama2.c's .bin files"


def check_ended(path: Path) -> None:
    """Refuses the folder of a training run that has not written its model yet."""
    if (path / "run" / "begun.json").exists() and not (path / "config.json").exists():
        raise CheckpointError(
            f"{path} is a training run that has not ended, and holds no model yet: "
            f"`cutaway train … --out {path} --resume` goes on with it"
        )


def config_at(path: Path) -> Config:
    """The numbers of a model folder or file, whatever its layout. Only headers of weights are looked at."""
    with naming(path):
        if path.suffix == ".gguf" and path.is_file():
            return gguf.config_in(GGUFFile(path))
        if path.suffix == ".bin" and path.is_file():
            return llama2c.config_in(llama2c.open_llama2c(path))
    finish_replacing(path)
    check_ended(path)
    file = path / "config.json" if path.is_dir() else path
    if file.name != "config.json" or not file.exists():
        raise CheckpointError(f"{path}: {READABLE}")
    values = read_json(file)
    with naming(file):
        return config_from_dict(values) if "family" in values else hf.read_config(file.parent).config
