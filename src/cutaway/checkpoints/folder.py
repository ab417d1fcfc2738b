"""A model folder of our own: config.json (family and numbers), model.safetensors, tokenizer.json, README.md."""

from pathlib import Path

import torch

from cutaway.checkpoints.layout import give_weights, native, read_weights
from cutaway.checkpoints.tensors import SINGLE, open_tensors, write_tensors
from cutaway.families import bare, config_from_dict
from cutaway.files import read_json, write_json
from cutaway.model.model import Model


def load_folder(folder: Path, *, dtype: torch.dtype, device: torch.device | str) -> Model:
    model = bare(config_from_dict(read_json(folder / "config.json")))
    return read_weights(model, native(model), open_tensors(folder), dtype=dtype, device=device)


def save_folder(model: Model, folder: Path) -> None:
    """Weights first, config last: a folder with a config is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / SINGLE, give_weights(model, native(model)))
    write_json(folder / "config.json", model.config.to_dict())
