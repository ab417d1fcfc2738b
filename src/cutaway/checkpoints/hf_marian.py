"""Marian in the Hugging Face layout: the 2017 Transformer as OPUS-MT's translators are published. Pegasus is the same
with norms before its parts.

Its positions have all sines first, those of the paper a sine and a cosine in turn: the same numbers. Nothing in a
Transformer depends on how the d_model numbers of its stream are ordered, so a model of the paper's goes out with every
matrix reordered that reads or writes the stream, and its words are the same. Its hidden states are not.
"""

from typing import Any

from cutaway.checkpoints.hf import Keys
from cutaway.checkpoints.hf_shared import activation_out, joined_rule, linear_rules
from cutaway.checkpoints.layout import Layout, LayoutRule, LayoutTable, Reordered, Same, Shaped
from cutaway.errors import CheckpointError
from cutaway.families.transformer import TransformerConfig
from cutaway.model.positions import SinusoidalHalves

PEGASUS = {"translate": "PegasusForConditionalGeneration", "hidden": "PegasusModel"}
ARCHITECTURES = {
    "MarianMTModel": "translate",
    "MarianModel": "hidden",
    **{name: task for task, name in PEGASUS.items()},
}
PREFIX = "model."
# what their config cannot say; one matrix serves source, target and output
FIXED = {
    "positions": "sinusoidal_halves",
    "source_vocab_size": None,
    "tied": True,
    "norm_eps": 1e-5,
}


def config_in(keys: Keys, task: str) -> TransformerConfig:
    d_model, n_heads = keys.take("d_model", 1024), keys.take("encoder_attention_heads", 16)
    n_decoder_heads, d_ff = keys.take("decoder_attention_heads", 16), keys.take("encoder_ffn_dim", 4096)
    decoder_d_ff = keys.take("decoder_ffn_dim", 4096)
    for fixed in ("normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits"):
        keys.expect(fixed, False, 0)
    keys.expect("static_position_embeddings", True)
    keys.expect("share_encoder_decoder_embeddings", True)
    for unused in ("num_hidden_layers", "encoder_layerdrop", "decoder_layerdrop", "init_std", "activation_dropout",
                   "classif_dropout", "extra_pos_embeddings"):  # fmt: skip
        keys.take(unused)
    pegasus = keys.values["model_type"] == "pegasus"
    vocab_size = keys.take("vocab_size", 50265 if pegasus else 58101)
    keys.values.pop("decoder_vocab_size", None)
    keys.classes(task)
    return TransformerConfig(
        task=task,
        vocab_size=vocab_size,
        max_len=keys.take("max_position_embeddings", 1024),
        n_encoder_layers=keys.take("encoder_layers", 12),
        n_decoder_layers=keys.take("decoder_layers", 12),
        d_model=d_model,
        n_heads=n_heads,
        d_ff=d_ff,
        n_decoder_heads=None if n_decoder_heads == n_heads else n_decoder_heads,
        decoder_d_ff=None if decoder_d_ff == d_ff else decoder_d_ff,
        activation=keys.activation("activation_function", "gelu"),
        positions="sinusoidal_halves",
        wiring="pre_norm" if pegasus else "post_norm",
        scale_embedding=keys.take("scale_embedding", False),
        dropout=keys.take("dropout", 0.1),
        attention_dropout=keys.take("attention_dropout", 0.0),
        tied=keys.take("tie_word_embeddings", True),
        output_bias=keys.holds("final_logits_bias"),
        **keys.special(start="decoder_start_token_id", defaults=(0, 0, 1) if pegasus else (58100, 58100, 0)),
    )


def config_out(c: TransformerConfig) -> dict[str, Any]:
    for name, value in FIXED.items():
        if (own := getattr(c, name)) != value and not (own == "sinusoidal" and c.task == "translate"):
            raise CheckpointError(f"Marian's layout has {name}={value!r} and no word for {name}={own!r}")
    if c.start_id is None:
        raise CheckpointError("Marian's layout names the token that a translation begins with: set start_id")
    pre_norm = c.wiring == "pre_norm"
    named = {"model_type": "pegasus", "architectures": [PEGASUS[c.task]]} if pre_norm else {"model_type": "marian"}
    return named | {
        "is_encoder_decoder": True,
        "vocab_size": c.vocab_size,
        "decoder_vocab_size": c.vocab_size,
        "max_position_embeddings": c.max_len,
        "encoder_layers": c.n_encoder_layers,
        "decoder_layers": c.n_decoder_layers,
        "d_model": c.d_model,
        "encoder_attention_heads": c.n_heads,
        "decoder_attention_heads": c.heads_of("decoder"),
        "encoder_ffn_dim": c.d_ff,
        "decoder_ffn_dim": c.d_ff_of("decoder"),
        "activation_function": activation_out(c.activation),
        "scale_embedding": c.scale_embedding,
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "activation_dropout": 0.0,
        "tie_word_embeddings": c.tied,
        "share_encoder_decoder_embeddings": True,
        "static_position_embeddings": True,
    }


def layout(c: TransformerConfig) -> Layout:
    rules: dict[str, LayoutRule] = {"target_embedding.tokens.weight": Same("model.shared.weight")}
    copies = {f"model.{side}.embed_tokens.weight": "model.shared.weight" for side in ("encoder", "decoder")}
    for side, n_layers in (("encoder", c.n_encoder_layers), ("decoder", c.n_decoder_layers)):
        for layer in range(n_layers):
            rules |= _block(c, f"{side}.{layer}", f"model.{side}.layers.{layer}", across=side == "decoder")
        if c.wiring == "pre_norm":
            rules |= linear_rules(f"{side}.final_norm", f"model.{side}.layer_norm")
    if c.task == "translate":
        if c.output_bias:
            rules["head.bias"] = Shaped("final_logits_bias", (1, c.vocab_size))
        if c.tied:
            copies["lm_head.weight"] = "model.shared.weight"
        else:
            rules["head.weight"] = Same("lm_head.weight")
    if c.positions == "sinusoidal":
        order = [*range(0, c.d_model, 2), *range(1, c.d_model, 2)]
        rules = {
            name: rule if (axis := _stream_axis(name)) is None else Reordered(rule, axis, order)
            for name, rule in rules.items()
        }
    table = LayoutTable((c.max_len, c.d_model), lambda: SinusoidalHalves(c.max_len, c.d_model).rows())
    tables = {f"model.{side}.embed_positions.weight": table for side in ("encoder", "decoder")}
    return Layout(rules, copies, tables)


def _stream_axis(name: str) -> int | None:
    """Where a weight counts the numbers of the stream: what reads it in its columns, what writes it in its rows."""
    if name.endswith(("tokens.weight", "query_key_value.weight", "query.weight", "key_value.weight", "up.weight")):
        return 1
    return 0 if "norm." in name or ".output." in name or ".down." in name else None


def _block(c: TransformerConfig, ours: str, theirs: str, *, across: bool) -> dict[str, LayoutRule]:
    attention, cross = f"{theirs}.self_attn", f"{theirs}.encoder_attn"
    rules = (
        joined_rule(f"{ours}.attention.query_key_value", [f"{attention}.{x}_proj" for x in "qkv"], [c.d_model] * 3)
        | linear_rules(f"{ours}.attention.output", f"{attention}.out_proj")
        | linear_rules(f"{ours}.attention_norm", f"{theirs}.self_attn_layer_norm")
        | linear_rules(f"{ours}.feed_forward.up", f"{theirs}.fc1")
        | linear_rules(f"{ours}.feed_forward.down", f"{theirs}.fc2")
        | linear_rules(f"{ours}.feed_forward_norm", f"{theirs}.final_layer_norm")
    )
    if across:
        rules |= (
            linear_rules(f"{ours}.cross.query", f"{cross}.q_proj")
            | joined_rule(f"{ours}.cross.key_value", [f"{cross}.{x}_proj" for x in "kv"], [c.d_model] * 2)
            | linear_rules(f"{ours}.cross.output", f"{cross}.out_proj")
            | linear_rules(f"{ours}.cross_norm", f"{theirs}.encoder_attn_layer_norm")
        )
    return rules
