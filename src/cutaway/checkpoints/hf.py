"""Folders in the Hugging Face layout, in and out. Nothing in them is run; unknown keys are refused, not guessed.

Each `hf_<family>` file says how one published layout's config and tensors correspond to ours:
`ARCHITECTURES` (class name → task), `read_config`, `write_config`, `layout`, `PREFIX`, and where there are more files
than config and weights, `extra_files`.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cutaway.checkpoints.hf_config import HFConfig
from cutaway.checkpoints.layout import Layout, give_weights, read_weights
from cutaway.checkpoints.model_folder import write_folder
from cutaway.checkpoints.tensors import INDEX, SINGLE, TensorFile, open_tensors
from cutaway.checkpoints.weight_source import TensorSource
from cutaway.errors import CheckpointError
from cutaway.families import bare
from cutaway.files import naming, read_json
from cutaway.model.config import Config
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer

# Their model_type → our file of its names.
MODEL_TYPES = {
    "bert": "hf_bert",
    "roberta": "hf_roberta",
    "roformer": "hf_roformer",
    "vit": "hf_vit",
    "openai-gpt": "hf_gpt",
    "gpt2": "hf_gpt2",
    "llama": "hf_llama",
    "mistral": "hf_llama",
    "marian": "hf_marian",
    "pegasus": "hf_marian",
    "t5": "hf_t5",
}
# Our family → the file that writes its names.
FAMILIES = {file.removeprefix("hf_"): file for file in MODEL_TYPES.values() if file != "hf_marian"}
FAMILIES["transformer"] = "hf_marian"


class Published(NamedTuple):
    """What a folder says of its model before any weight is read."""

    config: Config
    names: ModuleType  # the `hf_<family>` file
    source: TensorFile | None  # its tensors; None where there is only a config


def read_config(folder: Path) -> Config:
    """The config in a Hugging Face folder."""
    return read_published(folder).config


def read_published(folder: Path) -> Published:
    """The config and the headers of the weights, where there are any: their names tell what a config leaves open."""
    values = read_json(folder / "config.json")
    names = _names_for(values.get("model_type"), folder)
    stored = any((folder / name).exists() for name in (SINGLE, INDEX))
    source = open_tensors(folder) if stored else None
    reader = HFConfig(values, f"{folder / 'config.json'}", source)
    reader.expect("is_decoder", False)
    reader.expect("pruned_heads", {}, None)
    with naming(reader.where):
        config = names.read_config(reader, _task(names, reader))
        reader.finish()
    return Published(config, names, source)


def load_model(folder: Path, *, dtype: torch.dtype, device: torch.device | str) -> Model:
    """A model from a Hugging Face folder."""
    config, names, source = read_published(folder)
    source = open_tensors(folder) if source is None else source  # says what is missing
    layout = _as_stored(names.layout(config), names.PREFIX, source)
    with naming(folder / "config.json"):
        model = bare(config)
    return read_weights(model, layout, source, dtype=dtype, device=device)


def export_hf(model: Model, folder: Path, tokenizer: Tokenizer | None) -> None:
    """Writes the model as `transformers` reads it."""
    from cutaway.checkpoints.hf_tokenizer import exported_tokenizer

    values = write_config(model.config) | {"torch_dtype": str(model.dtype).removeprefix("torch.")}
    tensors = give_weights(model, exported_layout(model.config))
    extra: dict[str, Any] = getattr(_writer(model.config), "extra_files", lambda config: {})(model.config)
    beside = None if tokenizer is None else exported_tokenizer(tokenizer, model.config)
    write_folder(folder, values, _contiguous(tensors), beside, {"format": "pt"}, extra)


def write_config(config: Config) -> dict[str, Any]:
    """Their config.json for a config of ours."""
    names = _writer(config)
    values: dict[str, Any] = names.write_config(config)
    classes = {task: name for name, task in reversed(names.ARCHITECTURES.items())}
    classes |= {"regress": classes["classify"]} if "classify" in classes else {}
    if config.task not in classes:
        raise CheckpointError(f"{values['model_type']} has no architecture for task={config.task!r}")
    values = {"architectures": [classes[config.task]]} | values | _write_labels(config)
    return values | _write_special_tokens(config, values.get("is_encoder_decoder", False))


def exported_layout(config: Config) -> Layout:
    """Their names as `export_hf` writes them: a body by itself has no prefix, which only a head's model adds."""
    names = _writer(config)
    layout: Layout = names.layout(config)
    return layout.renamed(lambda name: name.removeprefix(names.PREFIX)) if config.task == "hidden" else layout


def _writer(config: Config) -> ModuleType:
    if config.family not in FAMILIES:
        raise CheckpointError(f"no Hugging Face layout for the family {config.family!r}")
    return import_module(f"cutaway.checkpoints.{FAMILIES[config.family]}")


def _write_labels(config: Config) -> dict[str, Any]:
    if config.task not in ("classify", "tag", "regress"):
        return {}
    n = 1 if config.task == "regress" else config.n_classes or 0
    labels = config.labels or tuple(f"LABEL_{i}" for i in range(n))
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


def _write_special_tokens(config: Config, translates: bool) -> dict[str, Any]:
    if not hasattr(config, "vocab_size"):
        return {}
    ends = config.end_ids or ()
    start = "decoder_start_token_id" if translates else "bos_token_id"
    end = list(ends) if len(ends) > 1 else ends[0] if ends else None
    return {"pad_token_id": config.pad_id, start: config.start_id, "eos_token_id": end}


def _contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Views, such as slices and transposed matrices, are copied; they share memory with each other."""
    return {name: t.clone() if t._is_view() else t for name, t in tensors.items()}


def _names_for(model_type: Any, folder: Path) -> ModuleType:
    if not isinstance(model_type, str) or model_type not in MODEL_TYPES:
        raise CheckpointError(f"{folder}: model_type={model_type!r} is not one of {', '.join(MODEL_TYPES)}")
    return import_module(f"cutaway.checkpoints.{MODEL_TYPES[model_type]}")


def _task(names: ModuleType, values: HFConfig) -> str:
    """The task that the architecture's name stands for; one number to predict means regression."""
    # Early configs name no architecture. The first is the usual one, and each stored tensor must have its place in it.
    stated = values.get("architectures", [next(iter(names.ARCHITECTURES))], null=True)
    name = next(iter(names.ARCHITECTURES if stated is None else stated), None)
    if not isinstance(name, str) or name not in names.ARCHITECTURES:
        raise CheckpointError(f"{values.where}: architecture {name!r} is not one of {', '.join(names.ARCHITECTURES)}")
    task: str = names.ARCHITECTURES[name]
    return "regress" if task == "classify" and values.n_labels() == 1 else task


def _as_stored(layout: Layout, prefix: str, source: TensorSource) -> Layout:
    """The layout with the names in this file: a body saved alone has no prefix; early norms have a gamma and a beta."""
    stored = set(source.names())
    if not any(name.startswith(prefix) for name in stored):
        layout = layout.renamed(lambda name: name.removeprefix(prefix))

    def as_stored(name: str) -> str:
        early = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        return early if early in stored else name

    return layout.renamed(as_stored)
