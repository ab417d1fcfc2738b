"""Folders in the Hugging Face layout, in and out. Nothing in them is run; unknown keys are refused, not guessed.

Each `hf_<family>` file says how one published layout's config and tensors correspond to ours:
`ARCHITECTURES` (class name → task), `config_in`, `config_out`, `layout`, `PREFIX`, and where there are more files than
config and weights, `more_files`.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cutaway.checkpoints.hf_tokenizer import as_read
from cutaway.checkpoints.layout import Layout, give_weights, read_weights
from cutaway.checkpoints.model_folder import write_folder
from cutaway.checkpoints.tensors import INDEX, SINGLE, TensorFile, open_tensors
from cutaway.checkpoints.weight_source import TensorSource
from cutaway.errors import CheckpointError, ConfigError
from cutaway.families import bare
from cutaway.files import naming, read_json
from cutaway.model.config import Config
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer

# their model_type → the file that knows its names
NAMES = {
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
# our family → the file that writes its names
WRITERS = {
    "bert": "hf_bert",
    "roberta": "hf_roberta",
    "roformer": "hf_roformer",
    "vit": "hf_vit",
    "gpt": "hf_gpt",
    "gpt2": "hf_gpt2",
    "llama": "hf_llama",
    "transformer": "hf_marian",
    "t5": "hf_t5",
}

# Keys that say how a model was made, stored or usually used, and change no number of its forward pass.
BOOKKEEPING = frozenset(
    """
    _attn_implementation_autoset _commit_hash _name_or_path _num_labels add_cross_attention architectures bad_words_ids
    begin_suppress_tokens bos_token_id
    chunk_size_feed_forward classifier_dropout classifier_proj_size cross_attention_hidden_size
    decoder_start_token_id decoder_vocab_size directionality diversity_penalty do_sample dtype early_stopping
    encoder_no_repeat_ngram_size encoder_stride eos_token_id exponential_decay_length_penalty finetuning_task
    forced_bos_token_id forced_eos_token_id gradient_checkpointing initializer_factor initializer_range
    is_encoder_decoder keys_to_ignore_at_inference language length_penalty max_length min_length model_type
    no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_attentions output_hidden_states
    output_past output_scores pad_token_id prefix pretraining_tp problem_type remove_invalid_values
    repetition_penalty return_dict return_dict_in_generate sep_token_id suppress_tokens task_specific_params
    temperature tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript
    transformers.js_config transformers_version typical_p use_bfloat16 use_cache
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

    def __init__(self, values: Mapping[str, Any], where: str, source: TensorSource | None = None) -> None:
        self.values, self.where = dict(values), where
        self.source = source  # the tensors beside the config, where it leaves something to them
        self.asked: set[str] = set()

    def take(self, name: str, default: Any = None, *, kind: type | None = None, null: bool = False) -> Any:
        """The value of a key, or what their library would use without it. It must be of the default's kind, if any."""
        self.asked.add(name)
        value = self.values.get(name, default)
        if value is None and (default is None or null):
            return None
        kind = type(default) if kind is None and default is not None else kind
        if kind is float and type(value) is int and abs(value) < 2**53:
            return float(value)
        if kind is not None and type(value) is not kind:
            raise ConfigError(f"{self.where}: {name}={value!r} is not of type {kind.__name__}")
        return value

    def expect(self, name: str, *allowed: Any) -> None:
        """A key that Cutaway can read in one way only."""
        self.asked.add(name)
        if (value := self.values.get(name, allowed[0])) not in allowed:
            raise ConfigError(f"{self.where}: {name}={value!r} is not supported; only {allowed[0]!r} is")

    def holds(self, ending: str) -> bool:
        """Whether a tensor's name ends like this, where the config leaves it to the tensors."""
        return self.source is not None and any(name.endswith(ending) for name in self.source.names())

    def activation(self, name: str, default: str) -> str:
        value = self.take(name, default)
        if value not in ACTIVATIONS:
            raise ConfigError(f"{self.where}: {name}={value!r} is not one of {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def n_labels(self) -> int:
        """How many labels there are; without any, their library means two."""
        labels, n = self.take("id2label", {}, null=True), self.take("num_labels", 2, null=True)
        return len(labels or {}) or n or 2

    def classes(self, task: str) -> dict[str, Any]:
        """The number of classes and their labels, where the task has classes."""
        n, labels = self.n_labels(), self.take("id2label") or {}
        self.take("label2id")
        if task not in ("classify", "tag"):
            return {}
        names = tuple(labels.get(str(i)) for i in range(len(labels)))
        if not names or not all(isinstance(name, str) for name in names):
            return {"n_classes": n}
        return {"n_classes": n, "labels": names}

    def special(
        self, *, start: str = "bos_token_id", defaults: Sequence[int | None] = (None, None, None)
    ) -> dict[str, Any]:
        """The ids of padding, start and end; a number outside the vocabulary stands for «there is none»."""
        vocab_size = self.take("vocab_size", 2**22)

        def known(id_: Any) -> bool:
            return isinstance(id_, int) and 0 <= id_ < vocab_size

        pad, first, last = (
            self.take(n) if n in self.values else d
            for n, d in zip(("pad_token_id", start, "eos_token_id"), defaults, strict=True)
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


class Published(NamedTuple):
    """What a folder says of its model before any weight is read."""

    config: Config
    names: ModuleType  # the file that knows its names
    source: TensorFile | None  # its tensors, None where the config lies there by itself


def read_config(folder: Path) -> Published:
    """The numbers in a Hugging Face folder; where weights lie beside them, their names tell what is left open."""
    values = read_json(folder / "config.json")
    names = _names_for(values.get("model_type"), folder)
    stored = any((folder / name).exists() for name in (SINGLE, INDEX))
    source = open_tensors(folder) if stored else None
    keys = Keys(values, f"{folder / 'config.json'}", source)
    keys.expect("is_decoder", False)
    keys.expect("pruned_heads", {}, None)
    with naming(keys.where):
        config = names.config_in(keys, _task(names, keys))
        keys.finish()
    return Published(config, names, source)


def load_hf(folder: Path, *, dtype: torch.dtype, device: torch.device | str) -> Model:
    """A model from a Hugging Face folder."""
    config, names, source = read_config(folder)
    source = open_tensors(folder) if source is None else source  # says what is missing
    layout = _as_stored(names.layout(config), names.PREFIX, source)
    with naming(folder / "config.json"):
        model = bare(config)
    return read_weights(model, layout, source, dtype=dtype, device=device)


def export_hf(model: Model, folder: Path, tokenizer: Tokenizer | None) -> None:
    """Writes the model as `transformers` reads it."""
    values = config_out(model.config) | {"torch_dtype": str(model.dtype).removeprefix("torch.")}
    tensors = give_weights(model, layout_out(model.config))
    more: dict[str, Any] = getattr(_writer(model.config), "more_files", lambda config: {})(model.config)
    beside = None if tokenizer is None else as_read(tokenizer, model.config)
    write_folder(folder, values, _contiguous(tensors), beside, {"format": "pt"}, more)


def config_out(config: Config) -> dict[str, Any]:
    """Their config.json for these numbers."""
    names = _writer(config)
    values: dict[str, Any] = names.config_out(config)
    classes = {task: name for name, task in reversed(names.ARCHITECTURES.items())}
    classes |= {"regress": classes["classify"]} if "classify" in classes else {}
    if config.task not in classes:
        raise CheckpointError(f"{values['model_type']} has no architecture for task={config.task!r}")
    values = {"architectures": [classes[config.task]]} | values | _labels_out(config)
    return values | _special_out(config, values.get("is_encoder_decoder", False))


def layout_out(config: Config) -> Layout:
    """Their names as `export_hf` writes them: a body by itself has no prefix, which only a head's model puts there."""
    names = _writer(config)
    layout: Layout = names.layout(config)
    return layout.renamed(lambda name: name.removeprefix(names.PREFIX)) if config.task == "hidden" else layout


def _writer(config: Config) -> ModuleType:
    if config.family not in WRITERS:
        raise CheckpointError(f"no Hugging Face layout for the family {config.family!r}")
    return import_module(f"cutaway.checkpoints.{WRITERS[config.family]}")


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
    if not hasattr(config, "vocab_size"):
        return {}
    ends = config.end_ids or ()
    start = "decoder_start_token_id" if translates else "bos_token_id"
    end = list(ends) if len(ends) > 1 else ends[0] if ends else None
    return {"pad_token_id": config.pad_id, start: config.start_id, "eos_token_id": end}


def _contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Slices and transposed views as tensors of their own; the whole rest as it is."""
    return {name: t.clone() if t._is_view() else t for name, t in tensors.items()}


def _names_for(model_type: Any, folder: Path) -> ModuleType:
    if not isinstance(model_type, str) or model_type not in NAMES:
        raise CheckpointError(f"{folder}: model_type={model_type!r} is not one of {', '.join(NAMES)}")
    return import_module(f"cutaway.checkpoints.{NAMES[model_type]}")


def _task(names: ModuleType, keys: Keys) -> str:
    """The task that the architecture's name stands for; one number to predict means regression."""
    # Early configs name no architecture. The first is the usual one, and every tensor must have its place in it.
    stated = keys.take("architectures", [next(iter(names.ARCHITECTURES))], null=True)
    name = next(iter(names.ARCHITECTURES if stated is None else stated), None)
    if not isinstance(name, str) or name not in names.ARCHITECTURES:
        raise CheckpointError(f"{keys.where}: architecture {name!r} is not one of {', '.join(names.ARCHITECTURES)}")
    task: str = names.ARCHITECTURES[name]
    return "regress" if task == "classify" and keys.n_labels() == 1 else task


def _as_stored(layout: Layout, prefix: str, source: TensorSource) -> Layout:
    """The layout as this file writes it: a body saved by itself has no prefix, the earliest norms have Greek names."""
    stored = set(source.names())
    if not any(name.startswith(prefix) for name in stored):
        layout = layout.renamed(lambda name: name.removeprefix(prefix))

    def as_stored(name: str) -> str:
        early = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        return early if early in stored else name

    return layout.renamed(as_stored)
