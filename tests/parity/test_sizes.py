"""Every named size has as many parameters as `transformers` counts for the same numbers."""

from importlib import import_module
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING

from cutaway.checkpoints.hf import FAMILIES, write_config
from cutaway.families import bare, build, config_of, sizes
from cutaway.model.config import Config

# what the papers, or everybody since, say
PUBLISHED: dict[str, tuple[int, dict[str, Any]]] = {
    "bert-base": (109_482_240, {"task": "hidden"}),
    "bert-large": (335_141_888, {"task": "hidden"}),
    "gpt": (116_534_784, {}),
    "gpt2": (124_439_808, {}),
    "gpt2-medium": (354_823_168, {}),
    "gpt2-large": (774_030_080, {}),
    "gpt2-xl": (1_557_611_200, {}),
    "vit-b-16": (86_567_656, {}),
    "vit-l-16": (304_326_632, {}),
}


@pytest.mark.parametrize("size", PUBLISHED)
def test_counts_that_everybody_knows(size: str):
    count, changes = PUBLISHED[size]
    assert build(size, device="meta", **changes).n_parameters() == count


def as_published(config: Config) -> Config:
    """The 2017 Transformer has a layout only as Marian published it: sines before cosines, a token to start with."""
    return config.with_(positions="sinusoidal_halves", start_id=0) if config.family == "transformer" else config


def theirs(config: Config) -> nn.Module:
    """Their model of these numbers, without memory."""
    values = write_config(config)
    kind = getattr(transformers, values["architectures"][0])
    with torch.device("meta"):
        return kind(CONFIG_MAPPING[values["model_type"]].from_dict(values))


def counted_otherwise(config: Config) -> int:
    """What they count beyond ours, and why."""
    if config.family == "roberta":  # rows of positions that no token reads: the first stands at pad_id + 1
        return (config.pad_id + 1) * config.d_model
    if config.family == "t5" and not config.tied:  # they tie every T5 until a file shows two matrices
        return -config.vocab_size * config.d_model
    return 0


def assert_as_many(config: Config) -> None:
    trained = {parameter for parameter in theirs(config).parameters() if parameter.requires_grad}
    assert bare(config).n_parameters() + counted_otherwise(config) == sum(p.numel() for p in trained), config.task


@pytest.mark.parametrize(
    "size", [size for size, config in sizes().items() if config.family in FAMILIES]
)  # no LSTMs there
def test_as_many_parameters(size: str):
    assert_as_many(as_published(config_of(size)))


@pytest.mark.parametrize("size", ["bert-tiny", "roberta-base", "roformer-small", "vit-ti-16", "gpt", "gpt2"])
def test_as_many_parameters_for_every_task(size: str):
    config = config_of(size)
    for task in import_module(f"cutaway.checkpoints.{FAMILIES[config.family]}").ARCHITECTURES.values():
        assert_as_many(config.with_(task=task, n_classes=3, n_layers=2))
