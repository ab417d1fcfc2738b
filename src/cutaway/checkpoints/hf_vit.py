"""ViT in the Hugging Face layout, where cutting a picture into patches is a convolution."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cutaway.checkpoints.hf_bert import has_pooler
from cutaway.checkpoints.hf_config import (
    ENCODER_FIELDS,
    Field,
    Fields,
    HFConfig,
    Override,
    read_fields,
    write_fields,
)
from cutaway.checkpoints.hf_layout import block_rules, linear_rules
from cutaway.checkpoints.layout import Layout, LayoutRule, Same, Shaped
from cutaway.errors import ConfigError
from cutaway.families.vit import ViTConfig

ARCHITECTURES = {"ViTForImageClassification": "classify", "ViTModel": "hidden"}
PREFIX = "vit."


@dataclass(frozen=True)
class Side(Field):
    """The side of a square, which may be stated twice: 224 or [224, 224]."""

    def read(self, config: HFConfig, ours: Mapping[str, Any]) -> int:
        value = config.get(self.name)
        if isinstance(value, list):
            if len(value) != 2 or value[0] != value[1]:
                raise ConfigError(f"{config.where}: {self.name}={value} is not supported; only squares are")
            config.values[self.name] = value[0]
        return config.get(self.name, self.default)


FIELDS: Fields = {
    "image_size": Side("image_size", 224),
    "patch_size": Side("patch_size", 16),
    "n_channels": Field("num_channels", 3),
    **ENCODER_FIELDS,
    "dropout": Field("hidden_dropout_prob", 0.0),
    "attention_dropout": Override("attention_probs_dropout_prob", 0.0, of="dropout"),
    "query_key_value_bias": Field("qkv_bias", True),
}
BLOCK = {
    "attention.query_key_value": "attention.attention.query attention.attention.key attention.attention.value",
    "attention.output": "attention.output.dense",
    "attention_norm": "layernorm_before",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_norm": "layernorm_after",
}


def read_config(values: HFConfig, task: str) -> ViTConfig:
    ours = read_fields(values, FIELDS)
    values.expect("pooler_act", "tanh")
    values.expect("pooler_output_size", ours["d_model"], None)
    return ViTConfig(task=task, pooler=has_pooler(values, task), **ours, **values.classes(task))


def write_config(c: ViTConfig) -> dict[str, Any]:
    return {"model_type": "vit"} | write_fields(c, FIELDS)


def extra_files(c: ViTConfig) -> dict[str, dict[str, Any]]:
    """How their ViTImageProcessor prepares a picture, where the model knows it: resized, /255, −mean, /std."""
    if c.pixel_mean is None or c.pixel_std is None:
        return {}
    numbers = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": c.image_size, "width": c.image_size},
        "resample": 3,  # PIL's name for bicubic
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(c.pixel_mean),
        "image_std": list(c.pixel_std),
    }
    return {"preprocessor_config.json": numbers}


def layout(c: ViTConfig) -> Layout:
    patches = "vit.embeddings.patch_embeddings.projection"
    places = (c.image_size // c.patch_size) ** 2 + 1
    rules: dict[str, LayoutRule] = {
        "embedding.project.weight": Shaped(f"{patches}.weight", (c.d_model, c.n_channels, c.patch_size, c.patch_size)),
        "embedding.project.bias": Same(f"{patches}.bias"),
        "embedding.class_token": Shaped("vit.embeddings.cls_token", (1, 1, c.d_model)),
        "embedding.positions": Shaped("vit.embeddings.position_embeddings", (1, places, c.d_model)),
    }
    rules |= linear_rules("encoder.final_norm", "vit.layernorm")
    joined = "attention.query_key_value"
    heights, no_bias = {joined: [c.d_model] * 3}, () if c.query_key_value_bias else (joined,)
    for layer in range(c.n_layers):
        rules |= block_rules(f"encoder.{layer}", f"vit.encoder.layer.{layer}", BLOCK, heights, no_bias=no_bias)
    if c.task in ("classify", "regress"):
        rules |= linear_rules("head.classes", "classifier")
    elif c.pooler:
        rules |= linear_rules("head.pool.dense", "vit.pooler.dense")
    return Layout(rules)
