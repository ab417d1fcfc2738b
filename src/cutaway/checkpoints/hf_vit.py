"""ViT in the Hugging Face layout, where cutting a picture into patches is a convolution."""

from typing import Any

from cutaway.checkpoints.hf import Keys
from cutaway.checkpoints.hf_bert import pooler_in
from cutaway.checkpoints.hf_shared import activation_out, encoder_block, linear_rules, other_than
from cutaway.checkpoints.layout import Layout, LayoutRule, Same, Shaped
from cutaway.errors import ConfigError
from cutaway.families.parts import either
from cutaway.families.vit import ViTConfig

ARCHITECTURES = {"ViTForImageClassification": "classify", "ViTModel": "hidden"}
PREFIX = "vit."


def config_in(keys: Keys, task: str) -> ViTConfig:
    d_model = keys.take("hidden_size", 768)
    keys.expect("pooler_act", "tanh")
    keys.expect("pooler_output_size", d_model, None)
    dropout = keys.take("hidden_dropout_prob", 0.0)
    attention_dropout = keys.take("attention_probs_dropout_prob", 0.0)
    return ViTConfig(
        task=task,
        image_size=_side(keys, "image_size", 224),
        patch_size=_side(keys, "patch_size", 16),
        n_channels=keys.take("num_channels", 3),
        n_layers=keys.take("num_hidden_layers", 12),
        d_model=d_model,
        n_heads=keys.take("num_attention_heads", 12),
        d_ff=keys.take("intermediate_size", 3072),
        activation=keys.activation("hidden_act", "gelu"),
        norm_eps=keys.take("layer_norm_eps", 1e-12),
        dropout=dropout,
        attention_dropout=other_than(dropout, attention_dropout),
        query_key_value_bias=keys.take("qkv_bias", True),
        pooler=pooler_in(keys, task),
        **keys.classes(task),
    )


def _side(keys: Keys, name: str, default: int) -> int:
    """The side of a square, which may be written twice."""
    value = keys.take(name)
    if isinstance(value, list):
        if len(value) != 2 or value[0] != value[1]:
            raise ConfigError(f"{keys.where}: {name}={value} is not supported; only squares are")
        keys.values[name] = value[0]
    return keys.take(name, default)


def config_out(c: ViTConfig) -> dict[str, Any]:
    return {
        "model_type": "vit",
        "image_size": c.image_size,
        "patch_size": c.patch_size,
        "num_channels": c.n_channels,
        "num_hidden_layers": c.n_layers,
        "hidden_size": c.d_model,
        "num_attention_heads": c.n_heads,
        "intermediate_size": c.d_ff,
        "hidden_act": activation_out(c.activation),
        "layer_norm_eps": c.norm_eps,
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": either(c.attention_dropout, c.dropout),
        "qkv_bias": c.query_key_value_bias,
    }


def more_files(c: ViTConfig) -> dict[str, dict[str, Any]]:
    """How their ViTImageProcessor makes numbers of a picture, where the model knows it: resized, /255, −mean, /std."""
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
    norms, bias = ("layernorm_before", "layernorm_after"), c.query_key_value_bias
    for layer in range(c.n_layers):
        ours, theirs = f"encoder.{layer}", f"vit.encoder.layer.{layer}"
        rules |= encoder_block(ours, theirs, c.d_model, attention="attention", norms=norms, bias=bias)
    if c.task in ("classify", "regress"):
        rules |= linear_rules("head.classes", "classifier")
    elif c.pooler:
        rules |= linear_rules("head.pool.dense", "vit.pooler.dense")
    return Layout(rules)
