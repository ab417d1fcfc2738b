"""T5 in the Hugging Face layout: v1.0 (ReLU, tied) and v1.1 (gated GELU, untied).

The relative positions of all blocks are stored in the first.
"""

from typing import Any

import torch

from cutaway.checkpoints.hf_config import (
    ACTIVATION_NAMES,
    ACTIVATIONS,
    Field,
    Fields,
    HFConfig,
    read_fields,
    write_fields,
)
from cutaway.checkpoints.hf_layout import block_rules
from cutaway.checkpoints.layout import Layout, LayoutRule, Same
from cutaway.errors import CheckpointError, ConfigError
from cutaway.families.t5 import T5Config

ARCHITECTURES = {"T5ForConditionalGeneration": "translate", "T5Model": "hidden"}
PREFIX = ""
EMBEDDING, OUTPUT = "shared.weight", "lm_head.weight"


FIELDS: Fields = {
    "vocab_size": Field("vocab_size", 32128),
    "n_encoder_layers": Field("num_layers", 6),
    "n_decoder_layers": Field("num_decoder_layers", kind=int),
    "d_model": Field("d_model", 512),
    "n_heads": Field("num_heads", 8),
    "d_head": Field("d_kv", 64),
    "d_ff": Field("d_ff", 2048),
    "activation": Field("feed_forward_proj", "relu"),  # with `gated`: see `_read_activation`
    "n_buckets": Field("relative_attention_num_buckets", 32),
    "max_distance": Field("relative_attention_max_distance", 128),
    "norm_eps": Field("layer_norm_epsilon", 1e-6),
    "dropout": Field("dropout_rate", 0.1),
}
BLOCK = {
    "attention.query_key_value": "0.SelfAttention.q 0.SelfAttention.k 0.SelfAttention.v",
    "attention.output": "0.SelfAttention.o",
    "attention_norm": "0.layer_norm",
}
CROSS = {
    "cross.query": "1.EncDecAttention.q",
    "cross.key_value": "1.EncDecAttention.k 1.EncDecAttention.v",
    "cross.output": "1.EncDecAttention.o",
    "cross_norm": "1.layer_norm",
}


def read_config(values: HFConfig, task: str) -> T5Config:
    ours = read_fields(values, FIELDS)
    if ours["n_decoder_layers"] is None:
        ours["n_decoder_layers"] = ours["n_encoder_layers"]
    scale = values.get("tie_word_embeddings") is not False  # what v1.1 said before there was a key for it
    values.ignore("n_positions", "classifier_dropout")
    values.classes(task)
    return T5Config(
        task=task,
        tied=_is_tied(values),
        scale_output=values.get("scale_decoder_outputs", scale),
        **ours | _read_activation(values, ours["activation"]),
        **values.special_tokens(start="decoder_start_token_id", defaults=(0, 0, 1)),
    )


def _is_tied(values: HFConfig) -> bool:
    """Configs do not say it reliably (transformers 5 writes "tied" for every T5), so the stored matrices decide."""
    source = values.source
    if source is None or OUTPUT not in source:
        return True
    return torch.equal(source.read(OUTPUT), source.read(EMBEDDING))


def _read_activation(values: HFConfig, kind: str) -> dict[str, Any]:
    """`relu`, or `gated-gelu`, which always meant the GELU with tanh."""
    first, _, last = kind.rpartition("-")
    name = values.get("dense_act_fn", "gelu_new" if kind == "gated-gelu" else last)
    if first not in ("", "gated") or name not in ACTIVATIONS:
        raise ConfigError(f"{values.where}: feed_forward_proj={kind!r} with {name!r} is not supported")
    return {"activation": ACTIVATIONS[name], "gated": values.get("is_gated_act", first == "gated")}


def write_config(c: T5Config) -> dict[str, Any]:
    activation = ACTIVATION_NAMES[c.activation]
    if c.gated and activation == "gelu":
        raise CheckpointError("T5's layout has no gated GELU without tanh; set activation='gelu_tanh'")
    gated = f"gated-{'gelu' if activation == 'gelu_new' else activation}"
    return {
        "model_type": "t5",
        "is_encoder_decoder": True,
        **write_fields(c, FIELDS),
        "feed_forward_proj": gated if c.gated else activation,
        "tie_word_embeddings": c.scale_output,  # read as "scale", and by transformers 4 also as "tied"
        "scale_decoder_outputs": c.scale_output,
    }


def layout(c: T5Config) -> Layout:
    rules: dict[str, LayoutRule] = {"target_embedding.tokens.weight": Same(EMBEDDING)}
    copies = {f"{side}.embed_tokens.weight": EMBEDDING for side in ("encoder", "decoder")}
    width = c.n_heads * c.d_head
    heights = {
        "attention.query_key_value": [width] * 3,
        "cross.key_value": [width] * 2,
        "feed_forward.gate_up": [c.d_ff] * 2,
    }
    stacks = (
        ("encoder", "source_bias", c.n_encoder_layers, _names(c, 1)),
        ("decoder", "target_bias", c.n_decoder_layers, _names(c, 2) | CROSS),
    )
    for side, bias, n_layers, names in stacks:
        for layer in range(n_layers):
            rules |= block_rules(f"{side}.{layer}", f"{side}.block.{layer}.layer", names, heights, no_bias=names)
        rules[f"{side}.final_norm.weight"] = Same(f"{side}.final_layer_norm.weight")
        rules[f"{bias}.weight"] = Same(f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
    if c.task == "translate":
        if c.tied:
            copies[OUTPUT] = EMBEDDING
        else:
            rules["head.weight"] = Same(OUTPUT)
    # cross-attention has no positions, but early files store some for it
    return Layout(rules, copies, ignored=("EncDecAttention.relative_attention_bias.weight",))


def _names(c: T5Config, place: int) -> dict[str, str]:
    """The tensors of a block whose feed-forward network has this place in it."""
    dense = f"{place}.DenseReluDense"
    down = {"feed_forward.down": f"{dense}.wo", "feed_forward_norm": f"{place}.layer_norm"}
    if c.gated:
        return BLOCK | down | {"feed_forward.gate_up": f"{dense}.wi_0 {dense}.wi_1"}
    return BLOCK | down | {"feed_forward.up": f"{dense}.wi"}
