"""The architectures of the papers, assembled from parts, one file each.

    model = build("gpt2")                                   # by size, with new weights
    model = build("bert-base", task="classify", n_classes=2)
    model = build(GPT2Config(n_layers=4, d_model=256, …))   # by numbers

A family is its config, its sizes and its model. Adding one: write the file, add its line to FAMILIES.
"""

from importlib import import_module
from typing import Any

import torch

from cutaway.arguments import checked
from cutaway.errors import ConfigError
from cutaway.model.config import Config
from cutaway.model.device import usable_device
from cutaway.model.model import Model

# family → (module, config class, model class); a module is imported when its family is needed
FAMILIES: dict[str, tuple[str, str, str]] = {
    "transformer": ("families.transformer", "TransformerConfig", "Transformer"),
    "bert": ("families.bert", "BERTConfig", "BERT"),
    "roberta": ("families.roberta", "RoBERTaConfig", "RoBERTa"),
    "roformer": ("families.roformer", "RoFormerConfig", "RoFormer"),
    "gpt": ("families.gpt", "GPTConfig", "GPT"),
    "gpt2": ("families.gpt2", "GPT2Config", "GPT2"),
    "llama": ("families.llama", "LlamaConfig", "Llama"),
    "t5": ("families.t5", "T5Config", "T5"),
    "vit": ("families.vit", "ViTConfig", "ViT"),
    "lstm": ("families.lstm", "LSTMConfig", "LSTMModel"),
    "lstm-translator": ("families.lstm_translator", "LSTMTranslatorConfig", "LSTMTranslator"),
}


def classes_of(family: str) -> tuple[type[Config], type[Model]]:
    """The classes of a family's config and of its model."""
    if family not in FAMILIES:
        raise ConfigError(f"no family is called {family!r}; known: {', '.join(FAMILIES)}")
    file, config, model = FAMILIES[family]
    module = import_module(f"cutaway.{file}")
    return getattr(module, config), getattr(module, model)


def sizes() -> dict[str, Config]:
    """Every named size of every family."""
    files = dict.fromkeys(file for file, _, _ in FAMILIES.values())
    return {name: size for file in files for name, size in import_module(f"cutaway.{file}").SIZES.items()}


def config_of(size: str) -> Config:
    """The config of a named size. Most are named after their family, which is looked into first."""
    for family in sorted(FAMILIES, key=lambda name: len(name) if size.startswith(name) else 0, reverse=True):
        named: dict[str, Config] = import_module(f"cutaway.{FAMILIES[family][0]}").SIZES
        if size in named:
            return named[size]
    raise ConfigError(f"no size is called {size!r}; known: {', '.join(sizes())}")


def config_from_dict(values: dict[str, Any]) -> Config:
    """The config that `Config.to_dict` wrote."""
    if not isinstance(values.get("family"), str):
        raise ConfigError(f"a config names its `family`: one of {', '.join(FAMILIES)}")
    config, _ = classes_of(values["family"])
    return config.from_dict(values)


@checked
def build(
    size: str | Config,
    *,
    seed: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    **changes: Any,
) -> Model:
    """A model with new weights, drawn as its paper does; the same seed gives the same weights."""
    config = config_of(size) if isinstance(size, str) else size
    config = config.with_(**changes) if changes else config
    if not dtype.is_floating_point:
        raise ConfigError(f"dtype={dtype} has no fractions: give torch.float32, torch.bfloat16 or torch.float16")
    model = bare(config).to(dtype)
    if str(device) == "meta":  # a model without memory, of which only the shapes are wanted
        return model
    device = usable_device(device)
    model.to_empty(device=device)
    own = [device] if device.type == "cuda" else []  # without the list, fork_rng initialises every GPU
    with torch.random.fork_rng(own, enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        model.initialise()
    return model


def bare(config: Config) -> Model:
    """The model on the meta device, without memory for its weights, which are drawn or loaded afterwards."""
    with torch.device("meta"):
        return classes_of(config.family)[1](config)
