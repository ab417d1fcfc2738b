"""Configs in the Hugging Face layout: which of their keys is which of our numbers. One table serves both directions.

    FIELDS = {"d_model": Field("hidden_size", 768), …}      # ours: theirs, and what it is where a config leaves it out

`read_fields` makes our numbers of their config.json, and `write_fields` their config.json of our numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.checkpoints.config_reader import ConfigReader
from cutaway.checkpoints.weight_source import TensorSource
from cutaway.errors import ConfigError
from cutaway.model.config import Config

# Keys that say how a model was made, stored or usually used, and change no number of its forward pass.
HARMLESS = frozenset(
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
ACTIVATION_NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}


class HFConfig(ConfigReader):
    """A Hugging Face config.json, and the tensors beside it (`source`), which say what it leaves open."""

    def __init__(self, values: Mapping[str, Any], where: str, source: TensorSource | None = None) -> None:
        super().__init__(values, where, HARMLESS)
        self.source = source

    def has_tensor(self, ending: str) -> bool:
        """Whether the name of a stored tensor ends like this."""
        return self.source is not None and any(name.endswith(ending) for name in self.source.names())

    def n_labels(self) -> int:
        """The number of labels; `transformers` assumes 2 where there are none."""
        labels, n = self.get("id2label", {}, null=True), self.get("num_labels", 2, null=True)
        return len(labels or {}) or n or 2

    def classes(self, task: str) -> dict[str, Any]:
        """The number of classes and their labels, where the task has classes."""
        n, labels = self.n_labels(), self.get("id2label") or {}
        self.ignore("label2id")
        if task not in ("classify", "tag"):
            return {}
        names = tuple(labels.get(str(i)) for i in range(len(labels)))
        if not names or not all(isinstance(name, str) for name in names):
            return {"n_classes": n}
        return {"n_classes": n, "labels": names}

    def special_tokens(
        self, *, start: str = "bos_token_id", defaults: Sequence[int | None] = (None, None, None)
    ) -> dict[str, Any]:
        """The ids of padding, start and end; an id outside the vocabulary means that there is no such token."""
        vocab_size = self.get("vocab_size", 2**22)

        def known(id_: Any) -> bool:
            return isinstance(id_, int) and 0 <= id_ < vocab_size

        names = ("pad_token_id", start, "eos_token_id")
        pad, first, last = (self.values.get(name, default) for name, default in zip(names, defaults, strict=True))
        self.ignore(*names)
        ends = tuple(id_ for id_ in (last if isinstance(last, list) else [last]) if known(id_))
        return {
            "pad_id": pad if known(pad) else None,
            "start_id": first if known(first) else None,
            "end_ids": ends or None,
        }


@dataclass(frozen=True)
class Field:
    """One key of theirs, and what `transformers` takes where a config leaves it out."""

    name: str
    default: Any = None
    kind: type | None = None
    null: bool = False

    def read(self, config: HFConfig, ours: Mapping[str, Any]) -> Any:
        """Our value; `ours` are those that have been read already."""
        return config.get(self.name, self.default, kind=self.kind, null=self.null)

    def write(self, value: Any, config: Config) -> Any:
        """Their value for ours."""
        return value


@dataclass(frozen=True)
class Activation(Field):
    """The name of an activation function."""

    def read(self, config: HFConfig, ours: Mapping[str, Any]) -> str:
        value = config.get(self.name, self.default)
        if value not in ACTIVATIONS:
            raise ConfigError(f"{config.where}: {self.name}={value!r} is not one of {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def write(self, value: Any, config: Config) -> str:
        return ACTIVATION_NAMES[value]


@dataclass(frozen=True, kw_only=True)
class Override(Field):
    """A number that overrides another, such as the dropout of attention. Ours is None where the two are equal."""

    of: str

    def read(self, config: HFConfig, ours: Mapping[str, Any]) -> Any:
        value = super().read(config, ours)
        return None if value == ours.get(self.of, 0.0) else value

    def write(self, value: Any, config: Config) -> Any:
        return getattr(config, self.of) if value is None else value


Fields = dict[str, Field]


def read_fields(config: HFConfig, fields: Fields) -> dict[str, Any]:
    """Our numbers."""
    ours: dict[str, Any] = {}
    for name, field in fields.items():
        ours[name] = field.read(config, ours)
    return ours


def write_fields(config: Config, fields: Fields) -> dict[str, Any]:
    """Their keys."""
    return {field.name: field.write(getattr(config, name), config) for name, field in fields.items()}


# What the configs of BERT and of those that came after it have in common.
ENCODER_FIELDS: Fields = {
    "n_layers": Field("num_hidden_layers", 12),
    "d_model": Field("hidden_size", 768),
    "n_heads": Field("num_attention_heads", 12),
    "d_ff": Field("intermediate_size", 3072),
    "activation": Activation("hidden_act", "gelu"),
    "norm_eps": Field("layer_norm_eps", 1e-12),
    "dropout": Field("hidden_dropout_prob", 0.1),
    "attention_dropout": Override("attention_probs_dropout_prob", 0.1, of="dropout"),
}
