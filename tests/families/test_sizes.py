"""The numbers of every family and of every named size, as their papers and files have them; and what they reach."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.tiny_models import tiny
from torch import nn

from cutaway.families import FAMILIES, build, classes_of, sizes
from cutaway.model.norms import LayerNorm, RMSNorm

# What a config of a family says where nothing else is asked; all that is not here is None.
USUAL: dict[str, dict[str, Any]] = {
    "transformer": {
        "task": "translate",
        "vocab_size": 37000,
        "max_len": 1024,
        "n_encoder_layers": 6,
        "n_decoder_layers": 6,
        "d_model": 512,
        "n_heads": 8,
        "d_ff": 2048,
        "activation": "relu",
        "positions": "sinusoidal",
        "wiring": "post_norm",
        "scale_embedding": True,
        "norm_eps": 1e-05,
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "tied": True,
        "output_bias": False,
    },
    "bert": {
        "task": "pretrain",
        "vocab_size": 30522,
        "max_len": 512,
        "n_segments": 2,
        "n_layers": 12,
        "d_model": 768,
        "n_heads": 12,
        "d_ff": 3072,
        "activation": "gelu",
        "norm_eps": 1e-12,
        "dropout": 0.1,
        "tied": True,
        "pooler": True,
        "pooling": "first",
    },
    "roberta": {
        "task": "masked_language_model",
        "pad_id": 1,
        "vocab_size": 50265,
        "max_len": 512,
        "n_segments": 1,
        "n_layers": 12,
        "d_model": 768,
        "n_heads": 12,
        "d_ff": 3072,
        "activation": "gelu",
        "norm_eps": 1e-05,
        "dropout": 0.1,
        "tied": True,
        "pooler": True,
        "pooling": "first",
    },
    "roformer": {
        "task": "masked_language_model",
        "vocab_size": 50000,
        "max_len": 1536,
        "n_segments": 2,
        "n_layers": 12,
        "d_model": 768,
        "n_heads": 12,
        "d_ff": 3072,
        "activation": "gelu",
        "norm_eps": 1e-12,
        "dropout": 0.1,
        "tied": True,
        "pooler": False,
        "pooling": "first",
    },
    "gpt": {
        "task": "language_model",
        "vocab_size": 40478,
        "max_len": 512,
        "n_layers": 12,
        "d_model": 768,
        "n_heads": 12,
        "d_ff": 3072,
        "activation": "gelu_tanh",
        "norm_eps": 1e-05,
        "dropout": 0.1,
        "tied": True,
    },
    "gpt2": {
        "task": "language_model",
        "vocab_size": 50257,
        "max_len": 1024,
        "n_layers": 12,
        "d_model": 768,
        "n_heads": 12,
        "d_ff": 3072,
        "activation": "gelu_tanh",
        "norm_eps": 1e-05,
        "dropout": 0.1,
        "tied": True,
    },
    "llama": {
        "task": "language_model",
        "vocab_size": 32000,
        "max_len": 2048,
        "n_layers": 32,
        "d_model": 4096,
        "n_heads": 32,
        "n_kv_heads": 32,
        "d_ff": 11008,
        "activation": "silu",
        "rotary_base": 10000.0,
        "attention_bias": False,
        "norm_eps": 1e-05,
        "dropout": 0.0,
        "tied": False,
    },
    "t5": {
        "task": "translate",
        "vocab_size": 32128,
        "n_encoder_layers": 12,
        "n_decoder_layers": 12,
        "d_model": 768,
        "n_heads": 12,
        "d_head": 64,
        "d_ff": 3072,
        "activation": "relu",
        "gated": False,
        "n_buckets": 32,
        "max_distance": 128,
        "norm_eps": 1e-06,
        "dropout": 0.1,
        "tied": True,
        "scale_output": True,
    },
    "vit": {
        "task": "classify",
        "n_classes": 1000,
        "image_size": 224,
        "patch_size": 16,
        "n_channels": 3,
        "n_layers": 12,
        "d_model": 768,
        "n_heads": 12,
        "d_ff": 3072,
        "activation": "gelu",
        "norm_eps": 1e-12,
        "dropout": 0.0,
        "query_key_value_bias": True,
        "pooler": True,
    },
    "lstm": {"task": "language_model", "vocab_size": 8000, "n_layers": 2, "d_model": 512, "dropout": 0.2, "tied": True},
    "lstm-translator": {
        "task": "translate",
        "vocab_size": 8000,
        "n_encoder_layers": 1,
        "d_model": 512,
        "dropout": 0.3,
        "tied": True,
    },
}
# And how each size differs from that.
NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer-tiny": (
        "transformer",
        {"vocab_size": 8000, "n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 128, "n_heads": 4, "d_ff": 512},
    ),
    "transformer-small": (
        "transformer",
        {"vocab_size": 16000, "n_encoder_layers": 4, "n_decoder_layers": 4, "d_model": 256, "n_heads": 4, "d_ff": 1024},
    ),
    "transformer-base": ("transformer", {}),
    "transformer-big": ("transformer", {"d_model": 1024, "n_heads": 16, "d_ff": 4096, "dropout": 0.3}),
    "bert-tiny": ("bert", {"n_layers": 2, "d_model": 128, "n_heads": 2, "d_ff": 512}),
    "bert-mini": ("bert", {"n_layers": 4, "d_model": 256, "n_heads": 4, "d_ff": 1024}),
    "bert-small": ("bert", {"n_layers": 4, "d_model": 512, "n_heads": 8, "d_ff": 2048}),
    "bert-medium": ("bert", {"n_layers": 8, "d_model": 512, "n_heads": 8, "d_ff": 2048}),
    "bert-base": ("bert", {}),
    "bert-large": ("bert", {"n_layers": 24, "d_model": 1024, "n_heads": 16, "d_ff": 4096}),
    "roberta-base": ("roberta", {}),
    "roberta-large": ("roberta", {"n_layers": 24, "d_model": 1024, "n_heads": 16, "d_ff": 4096}),
    "roformer-small": ("roformer", {"n_layers": 6, "d_model": 384, "n_heads": 6, "d_ff": 1536}),
    "roformer-base": ("roformer", {}),
    "gpt": ("gpt", {}),
    "gpt2": ("gpt2", {}),
    "gpt2-medium": ("gpt2", {"n_layers": 24, "d_model": 1024, "n_heads": 16, "d_ff": 4096}),
    "gpt2-large": ("gpt2", {"n_layers": 36, "d_model": 1280, "n_heads": 20, "d_ff": 5120}),
    "gpt2-xl": ("gpt2", {"n_layers": 48, "d_model": 1600, "n_heads": 25, "d_ff": 6400}),
    "stories15m": (
        "llama",
        {"max_len": 256, "n_layers": 6, "d_model": 288, "n_heads": 6, "n_kv_heads": 6, "d_ff": 768, "tied": True},
    ),
    "smollm2-135m": (
        "llama",
        {
            "vocab_size": 49152,
            "max_len": 8192,
            "n_layers": 30,
            "d_model": 576,
            "n_heads": 9,
            "n_kv_heads": 3,
            "d_ff": 1536,
            "rotary_base": 100000.0,
            "tied": True,
        },
    ),
    "llama-7b": ("llama", {"norm_eps": 1e-06}),
    "llama2-7b": ("llama", {"max_len": 4096}),
    "llama3-8b": (
        "llama",
        {"vocab_size": 128256, "max_len": 8192, "n_kv_heads": 8, "d_ff": 14336, "rotary_base": 500000.0},
    ),
    "mistral-7b": ("llama", {"max_len": 32768, "n_kv_heads": 8, "d_ff": 14336, "window": 4096}),
    "t5-small": ("t5", {"n_encoder_layers": 6, "n_decoder_layers": 6, "d_model": 512, "n_heads": 8, "d_ff": 2048}),
    "t5-base": ("t5", {}),
    "t5-large": ("t5", {"n_encoder_layers": 24, "n_decoder_layers": 24, "d_model": 1024, "n_heads": 16, "d_ff": 4096}),
    "t5-v1.1-small": (
        "t5",
        {
            "n_encoder_layers": 8,
            "n_decoder_layers": 8,
            "d_model": 512,
            "n_heads": 6,
            "d_ff": 1024,
            "activation": "gelu_tanh",
            "gated": True,
            "tied": False,
            "scale_output": False,
        },
    ),
    "t5-v1.1-base": (
        "t5",
        {"d_ff": 2048, "activation": "gelu_tanh", "gated": True, "tied": False, "scale_output": False},
    ),
    "vit-ti-16": ("vit", {"d_model": 192, "n_heads": 3, "d_ff": 768}),
    "vit-s-16": ("vit", {"d_model": 384, "n_heads": 6, "d_ff": 1536}),
    "vit-b-16": ("vit", {}),
    "vit-b-32": ("vit", {"patch_size": 32}),
    "vit-l-16": ("vit", {"n_layers": 24, "d_model": 1024, "n_heads": 16, "d_ff": 4096}),
    "lstm": ("lstm", {}),
    "lstm-translator": ("lstm-translator", {}),
}


def numbers(config: Any) -> dict[str, Any]:
    return {name: value for name, value in config.to_dict().items() if value is not None and name != "family"}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_config_says_where_nothing_is_asked(family: str) -> None:
    assert numbers(classes_of(family)[0]()) == USUAL[family]


def test_every_size_is_among_the_cases() -> None:
    assert set(sizes()) == set(NAMED)
    assert set(FAMILIES) == set(USUAL) == {family for family, _ in NAMED.values()}


@pytest.mark.parametrize("size", NAMED)
def test_the_numbers_of_every_size(size: str) -> None:
    family, changes = NAMED[size]
    config = sizes()[size]
    assert config.family == family
    assert numbers(config) == {name: value for name, value in (USUAL[family] | changes).items() if value is not None}


# --- what each number reaches -----------------------------------------------------------------------------------------

SOURCES = ("source_embedding.dropout", "target_embedding.dropout")
OF_ENCODERS = {
    "dropout": {"embedding.dropout", "encoder.N.dropout"},
    "attention_dropout": {"encoder.N.attention"},
}
OF_DECODERS = {
    "dropout": {"decoder.N.dropout"},
    "attention_dropout": {"decoder.N.attention"},
    "embedding_dropout": {"embedding.dropout"},
}
T5 = {"decoder.N.attention", "decoder.N.cross", "decoder.N.dropout", "decoder.N.feed_forward.dropout", "dropout",
      "encoder.N.attention", "encoder.N.dropout", "encoder.N.feed_forward.dropout", *SOURCES}  # fmt: skip
DROPPED: dict[str, dict[str, set[str]]] = {
    "transformer": {
        "dropout": {"decoder.N.dropout", "encoder.N.dropout", *SOURCES},
        "attention_dropout": {"decoder.N.attention", "decoder.N.cross", "encoder.N.attention"},
    },
    "t5": {"dropout": T5},
    **{name: {**OF_ENCODERS, "classifier_dropout": set()} for name in ("bert", "roberta", "roformer")},
    "vit": OF_ENCODERS,
    **dict.fromkeys(("gpt", "gpt2"), OF_DECODERS),
    "llama": {"dropout": {"decoder.N.dropout", "embedding.dropout"}, "attention_dropout": {"decoder.N.attention"}},
    "lstm": {"dropout": {"dropout", "embedding.dropout"}},
    "lstm-translator": {"dropout": {"decoder.N.dropout", "dropout", *SOURCES}},
}
CASES = [(name, option) for name, options in DROPPED.items() for option in options]


def places(model: nn.Module, p: float) -> Iterator[str]:
    """Where so much is dropped; a block stands for all."""
    for name, part in model.named_modules():
        if p in (getattr(part, "p", None), getattr(part, "dropout", None)):
            yield re.sub(r"\.\d+\.", ".N.", f"{name}.")[:-1]


@pytest.mark.parametrize(("name", "option"), CASES)
def test_each_dropout_reaches_its_own_places(name: str, option: str) -> None:
    model = tiny(name, **dict.fromkeys(DROPPED[name], 0.0) | {option: 0.5})
    assert {*places(model, 0.5)} == DROPPED[name][option]


@pytest.mark.parametrize("name", DROPPED)
def test_a_dropout_that_is_not_given_is_as_elsewhere(name: str) -> None:
    """The Transformer of 2017 drops nothing of its attention unless that is asked for."""
    given = {option: None for option in DROPPED[name] if option != "dropout"} if name != "transformer" else {}
    expected = set().union(*DROPPED[name].values()) if given else DROPPED[name]["dropout"]
    assert {*places(tiny(name, dropout=0.5, **given), 0.5)} == expected


@pytest.mark.parametrize("task", ["classify", "regress", "tag"])
@pytest.mark.parametrize("name", ["bert", "roberta", "roformer"])
def test_what_is_dropped_before_the_classes_has_a_number_of_its_own(name: str, task: str) -> None:
    n_classes = {} if task == "regress" else {"n_classes": 3}
    expected = {"head.dropout"} if name == "bert" or task == "tag" else {"head.dropout", "head.pool.dropout"}
    own = tiny(name, task=task, dropout=0.25, classifier_dropout=0.5, **n_classes)
    assert {*places(own, 0.5)} == expected
    assert {*places(tiny(name, task=task, dropout=0.5, attention_dropout=0.0, **n_classes), 0.5)} == (
        expected | OF_ENCODERS["dropout"]
    )


@pytest.mark.parametrize("name", [name for name in DROPPED if "lstm" not in name])
def test_the_epsilon_of_a_config_is_that_of_every_norm(name: str) -> None:
    model = tiny(name, norm_eps=0.125)
    found = [part.eps for part in model.modules() if isinstance(part, LayerNorm | RMSNorm | nn.LayerNorm)]
    assert found
    assert set(found) == {0.125}


PARAMETERS = {
    "transformer-tiny": 1_949_696, "transformer-small": 11_468_800, "transformer-base": 63_082_496,
    "transformer-big": 214_245_376, "bert-tiny": 4_433_468, "bert-mini": 11_267_900, "bert-small": 29_058_876,
    "bert-medium": 41_668_412, "bert-base": 110_106_428, "bert-large": 336_226_108, "roberta-base": 124_695_897,
    "roberta-large": 355_410_009, "roformer-small": 30_046_928, "roformer-base": 124_099_664, "gpt": 116_534_784,
    "gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200,
    "stories15m": 15_191_712, "smollm2-135m": 134_515_008, "llama-7b": 6_738_415_616, "llama2-7b": 6_738_415_616,
    "llama3-8b": 8_030_261_248, "mistral-7b": 7_241_732_096, "t5-small": 60_506_624, "t5-base": 222_903_552,
    "t5-large": 737_668_096, "t5-v1.1-small": 76_961_152, "t5-v1.1-base": 247_577_856, "vit-ti-16": 5_717_416,
    "vit-s-16": 22_050_664, "vit-b-16": 86_567_656, "vit-b-32": 88_224_232, "vit-l-16": 304_326_632, "lstm": 8_298_496,
    "lstm-translator": 10_272_576,
}  # fmt: skip


@pytest.mark.parametrize("size", NAMED)
def test_the_number_of_parameters_of_every_size(size: str) -> None:
    """A bias more or less shows in none of its answers: what a softmax reads may be moved as one likes."""
    assert build(size, device="meta").n_parameters() == PARAMETERS[size]
