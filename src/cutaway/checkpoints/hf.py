"""Folders in the Hugging Face layout, in and out. Nothing in them is run; unknown keys are refused, not guessed.

Each `names_<family>` file says how one published layout's config and tensors correspond to ours:
`MODEL_TYPES`, `ARCHITECTURES` (class name → task), `config_in`, `config_out`, `layout`, `PREFIX`.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from cutaway.checkpoints.layout import Layout, give_weights, read_weights
from cutaway.checkpoints.source import TensorSource
from cutaway.checkpoints.tensors import SINGLE, open_tensors, write_tensors
from cutaway.errors import CheckpointError, ConfigError
from cutaway.families import bare
from cutaway.files import read_json, write_json
from cutaway.model.config import Config
from cutaway.model.model import Model

# their model_type → the file that knows its names
NAMES = {
    "openai-gpt": "names_gpt",
    "gpt2": "names_gpt2",
    "marian": "names_marian",
}
# our family → the file that writes its names
WRITERS = {"gpt": "names_gpt", "gpt2": "names_gpt2", "transformer": "names_marian"}

# Keys that say how a model was made, stored or usually used, and change no number of its forward pass.
BOOKKEEPING = frozenset(
    """
    _name_or_path _num_labels add_cross_attention architectures bad_words_ids begin_suppress_tokens bos_token_id
    chunk_size_feed_forward classifier_dropout classifier_proj_size cross_attention_hidden_size
    decoder_start_token_id decoder_vocab_size directionality diversity_penalty do_sample dtype early_stopping
    encoder_no_repeat_ngram_size encoder_stride eos_token_id exponential_decay_length_penalty finetuning_task
    forced_bos_token_id forced_eos_token_id gradient_checkpointing initializer_factor initializer_range
    is_encoder_decoder keys_to_ignore_at_inference language length_penalty max_length min_length model_type
    no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_attentions output_hidden_states
    output_past output_scores pad_token_id prefix pretraining_tp problem_type remove_invalid_values
    repetition_penalty return_dict return_dict_in_generate sep_token_id suppress_tokens task_specific_params
    temperature tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript
    transformers_version typical_p use_bfloat16 use_cache
    """.split()
)
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


class Keys:
    """Their config, key by key; what nobody asked for and nobody knows to be harmless is refused at the end."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = dict(values), where
        self.asked: set[str] = set()

    def take(self, name: str, default: Any = None) -> Any:
        """The value of a key, or what their library would use without it."""
        self.asked.add(name)
        return self.values.get(name, default)

    def expect(self, name: str, *allowed: Any) -> None:
        """A key that Cutaway can read in one way only."""
        if (value := self.take(name, allowed[0])) not in allowed:
            raise ConfigError(f"{self.where}: {name}={value!r} is not supported; only {allowed[0]!r} is")

    def activation(self, name: str, default: str) -> str:
        value = self.take(name, default)
        if value not in ACTIVATIONS:
            raise ConfigError(f"{self.where}: {name}={value!r} is not one of {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def classes(self, task: str) -> dict[str, Any]:
        """The number of classes and their labels, where the task has classes."""
        labels = self.take("id2label")
        n = self.take("num_labels", 2 if labels is None else len(labels))
        self.take("label2id")
        if task not in ("classify", "tag"):
            return {}
        if labels is None or sorted(labels) != sorted(str(i) for i in range(n)):
            return {"n_classes": n}
        return {"n_classes": n, "labels": tuple(labels[str(i)] for i in range(n))}

    def special(
        self, *, start: str = "bos_token_id", defaults: Sequence[int | None] = (None, None, None)
    ) -> dict[str, Any]:
        """The ids of padding, start and end; a number outside the vocabulary stands for «there is none»."""
        vocab_size = self.values.get("vocab_size", 2**22)

        def known(id_: Any) -> bool:
            return isinstance(id_, int) and 0 <= id_ < vocab_size

        pad, first, last = (
            self.take(n, d) for n, d in zip(("pad_token_id", start, "eos_token_id"), defaults, strict=True)
        )
        ends = tuple(id_ for id_ in (last if isinstance(last, list) else [last]) if known(id_))
        return {
            "pad_id": pad if known(pad) else None,
            "start_id": first if known(first) else None,
            "end_ids": ends or None,
        }

    def finish(self) -> None:
        for name in self.values.keys() - self.asked - BOOKKEEPING:
            if name in ("auto_map", "custom_pipelines"):
                raise ConfigError(f"{self.where}: {name!r} asks to run code from the folder, which Cutaway never does")
            raise ConfigError(f"{self.where}: unknown key {name!r}: it may change the numbers, so it is not ignored")


def load_hf(folder: Path, *, dtype: torch.dtype, device: torch.device | str) -> Model:
    """A model from a Hugging Face folder."""
    values = read_json(folder / "config.json")
    names = _names_for(values.get("model_type"), folder)
    keys = Keys(values, f"{folder / 'config.json'}")
    keys.expect("is_decoder", False)
    config = names.config_in(keys, _task(names, values, folder))
    keys.finish()
    source = open_tensors(folder)
    layout = _with_prefix(names.layout(config), names.PREFIX, source)
    return read_weights(bare(config), layout, source, dtype=dtype, device=device)


def export_hf(model: Model, folder: Path) -> None:
    """Writes the model as `transformers` reads it."""
    file = WRITERS.get(model.config.family)
    if file is None:
        raise CheckpointError(f"no Hugging Face layout for the family {model.config.family!r}")
    names = import_module(f"cutaway.checkpoints.{file}")
    values = names.config_out(model.config)
    classes = {task: name for name, task in reversed(names.ARCHITECTURES.items())}
    if model.config.task not in classes:
        raise CheckpointError(f"{values['model_type']} has no architecture for task={model.config.task!r}")
    layout = names.layout(model.config)
    tensors = give_weights(model, layout)
    if (
        model.config.task == "hidden"
    ):  # a body by itself is stored without the prefix that a head's model puts before it
        tensors = {name.removeprefix(names.PREFIX): tensor for name, tensor in tensors.items()}
    folder.mkdir(parents=True, exist_ok=True)
    kind = str(model.dtype).removeprefix("torch.")
    values |= {"architectures": [classes[model.config.task]], "torch_dtype": kind} | _labels_out(model.config)
    values |= _special_out(model.config, values.get("is_encoder_decoder", False))
    write_tensors(folder / SINGLE, _contiguous(tensors), {"format": "pt"})
    write_json(folder / "config.json", values)


def _labels_out(config: Config) -> dict[str, Any]:
    if config.task not in ("classify", "tag", "regress"):
        return {}
    n = 1 if config.task == "regress" else config.n_classes or 0
    labels = config.labels or tuple(f"LABEL_{i}" for i in range(n))
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


def _special_out(config: Config, translates: bool) -> dict[str, Any]:
    ends = config.end_ids or ()
    start = "decoder_start_token_id" if translates else "bos_token_id"
    end = list(ends) if len(ends) > 1 else ends[0] if ends else None
    return {"pad_token_id": config.pad_id, start: config.start_id, "eos_token_id": end}


def _contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Slices and transposed views as tensors of their own; the whole rest as it is."""
    return {name: t.clone() if t._is_view() else t for name, t in tensors.items()}


def _names_for(model_type: Any, folder: Path) -> ModuleType:
    if model_type not in NAMES:
        raise CheckpointError(f"{folder}: model_type={model_type!r} is not one of {', '.join(NAMES)}")
    return import_module(f"cutaway.checkpoints.{NAMES[model_type]}")


def _task(names: ModuleType, values: Mapping[str, Any], folder: Path) -> str:
    """The task that the architecture's name stands for; one number to predict means regression."""
    architectures = values.get("architectures") or [next(iter(names.ARCHITECTURES))]
    if architectures[0] not in names.ARCHITECTURES:
        known = ", ".join(names.ARCHITECTURES)
        raise CheckpointError(f"{folder}: architecture {architectures[0]!r} is not one of {known}")
    task: str = names.ARCHITECTURES[architectures[0]]
    return "regress" if task == "classify" and len(values.get("id2label") or "12") == 1 else task


def _with_prefix(layout: Layout, prefix: str, source: TensorSource) -> Layout:
    """The layout as this file writes it: a body that was saved by itself has no prefix."""
    if not prefix or any(name.startswith(prefix) for name in source.names()):
        return layout
    return layout.renamed(lambda name: name.removeprefix(prefix))
