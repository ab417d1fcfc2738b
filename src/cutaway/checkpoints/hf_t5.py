"""T5 in the Hugging Face layout: v1.0 (ReLU, tied) and v1.1 (gated GELU, untied). First blocks hold the positions."""

from typing import Any

import torch

from cutaway.checkpoints.hf import ACTIVATIONS, Keys
from cutaway.checkpoints.hf_shared import activation_out, joined_rule, linear_rules
from cutaway.checkpoints.layout import Layout, LayoutRule, Same
from cutaway.errors import CheckpointError, ConfigError
from cutaway.families.t5 import T5Config

ARCHITECTURES = {"T5ForConditionalGeneration": "translate", "T5Model": "hidden"}
PREFIX = ""
EMBEDDING, OUTPUT = "shared.weight", "lm_head.weight"


def config_in(keys: Keys, task: str) -> T5Config:
    n_layers = keys.take("num_layers", 6)
    n_decoder_layers = keys.take("num_decoder_layers", n_layers, null=True)
    scaled = keys.take("tie_word_embeddings") is not False  # what v1.1 said before there was a key for it
    for unused in ("n_positions", "classifier_dropout"):
        keys.take(unused)
    keys.classes(task)
    return T5Config(
        task=task,
        vocab_size=keys.take("vocab_size", 32128),
        n_encoder_layers=n_layers,
        n_decoder_layers=n_layers if n_decoder_layers is None else n_decoder_layers,
        d_model=keys.take("d_model", 512),
        n_heads=keys.take("num_heads", 8),
        d_head=keys.take("d_kv", 64),
        d_ff=keys.take("d_ff", 2048),
        n_buckets=keys.take("relative_attention_num_buckets", 32),
        max_distance=keys.take("relative_attention_max_distance", 128),
        norm_eps=keys.take("layer_norm_epsilon", 1e-6),
        dropout=keys.take("dropout_rate", 0.1),
        tied=_tied(keys),
        scale_output=keys.take("scale_decoder_outputs", scaled),
        **_feed_forward_in(keys),
        **keys.special(start="decoder_start_token_id", defaults=(0, 0, 1)),
    )


def _tied(keys: Keys) -> bool:
    """Configs do not say it reliably (transformers 5 writes «tied» for every T5), so the stored matrices decide."""
    source = keys.source
    if source is None or OUTPUT not in source:
        return True
    return torch.equal(source.read(OUTPUT), source.read(EMBEDDING))


def _feed_forward_in(keys: Keys) -> dict[str, Any]:
    """`relu`, or `gated-gelu`, which always meant the GELU with tanh."""
    kind = keys.take("feed_forward_proj", "relu")
    first, _, last = kind.rpartition("-")
    name = keys.take("dense_act_fn", "gelu_new" if kind == "gated-gelu" else last)
    if first not in ("", "gated") or name not in ACTIVATIONS:
        raise ConfigError(f"{keys.where}: feed_forward_proj={kind!r} with {name!r} is not supported")
    return {"activation": ACTIVATIONS[name], "gated": keys.take("is_gated_act", first == "gated")}


def config_out(c: T5Config) -> dict[str, Any]:
    activation = activation_out(c.activation)
    if c.gated and activation == "gelu":
        raise CheckpointError("T5's layout has no gated GELU without tanh: activation='gelu_tanh' is what it has")
    feed_forward = f"gated-{'gelu' if activation == 'gelu_new' else activation}" if c.gated else activation
    return {
        "model_type": "t5",
        "is_encoder_decoder": True,
        "vocab_size": c.vocab_size,
        "num_layers": c.n_encoder_layers,
        "num_decoder_layers": c.n_decoder_layers,
        "d_model": c.d_model,
        "num_heads": c.n_heads,
        "d_kv": c.d_head,
        "d_ff": c.d_ff,
        "feed_forward_proj": feed_forward,
        "relative_attention_num_buckets": c.n_buckets,
        "relative_attention_max_distance": c.max_distance,
        "layer_norm_epsilon": c.norm_eps,
        "dropout_rate": c.dropout,
        "tie_word_embeddings": c.scale_output,  # read as «scale», by transformers 4 also as «tied»
        "scale_decoder_outputs": c.scale_output,
    }


def layout(c: T5Config) -> Layout:
    rules: dict[str, LayoutRule] = {"target_embedding.tokens.weight": Same(EMBEDDING)}
    copies = {f"{side}.embed_tokens.weight": EMBEDDING for side in ("encoder", "decoder")}
    for side, bias, n_layers in (
        ("encoder", "source_bias", c.n_encoder_layers),
        ("decoder", "target_bias", c.n_decoder_layers),
    ):
        for layer in range(n_layers):
            rules |= _block(c, f"{side}.{layer}", f"{side}.block.{layer}.layer", across=side == "decoder")
        rules |= linear_rules(f"{side}.final_norm", f"{side}.final_layer_norm", bias=False)
        rules[f"{bias}.weight"] = Same(f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
    if c.task == "translate":
        if c.tied:
            copies[OUTPUT] = EMBEDDING
        else:
            rules["head.weight"] = Same(OUTPUT)
    # cross-attention has no positions; the first files stored some for it all the same
    return Layout(rules, copies, ignored=("EncDecAttention.relative_attention_bias.weight",))


def _block(c: T5Config, ours: str, theirs: str, *, across: bool) -> dict[str, LayoutRule]:
    attention, cross, feed_forward = f"{theirs}.0", f"{theirs}.1", f"{theirs}.{2 if across else 1}"
    inside, width = f"{feed_forward}.DenseReluDense", c.n_heads * c.d_head
    rules = (
        joined_rule(
            f"{ours}.attention.query_key_value",
            [f"{attention}.SelfAttention.{x}" for x in "qkv"],
            [width] * 3,
            bias=False,
        )
        | linear_rules(f"{ours}.attention.output", f"{attention}.SelfAttention.o", bias=False)
        | linear_rules(f"{ours}.attention_norm", f"{attention}.layer_norm", bias=False)
        | linear_rules(f"{ours}.feed_forward.down", f"{inside}.wo", bias=False)
        | linear_rules(f"{ours}.feed_forward_norm", f"{feed_forward}.layer_norm", bias=False)
    )
    if c.gated:
        gate_up = [f"{inside}.wi_0", f"{inside}.wi_1"]
        rules |= joined_rule(f"{ours}.feed_forward.gate_up", gate_up, [c.d_ff] * 2, bias=False)
    else:
        rules |= linear_rules(f"{ours}.feed_forward.up", f"{inside}.wi", bias=False)
    if across:
        key_value = [f"{cross}.EncDecAttention.{x}" for x in "kv"]
        rules |= (
            linear_rules(f"{ours}.cross.query", f"{cross}.EncDecAttention.q", bias=False)
            | joined_rule(f"{ours}.cross.key_value", key_value, [width] * 2, bias=False)
            | linear_rules(f"{ours}.cross.output", f"{cross}.EncDecAttention.o", bias=False)
            | linear_rules(f"{ours}.cross_norm", f"{cross}.layer_norm", bias=False)
        )
    return rules
