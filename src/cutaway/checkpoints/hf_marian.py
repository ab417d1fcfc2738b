"""Marian in the Hugging Face layout: the 2017 Transformer as OPUS-MT's translators are published. Pegasus is the same
with norms before its parts.

Its positions have all sines first, those of the paper a sine and a cosine in turn: the same numbers. Nothing in a
Transformer depends on how the d_model numbers of its stream are ordered, so a model of the paper's goes out with every
matrix reordered that reads or writes the stream, and its words are the same. Its hidden states are not.
"""

from typing import Any

from cutaway.checkpoints.hf_config import Activation, Field, Fields, HFConfig, Override, read_fields, write_fields
from cutaway.checkpoints.hf_layout import block_rules, linear_rules
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
# Values of ours that their config cannot express. One matrix serves source, target and output.
FIXED = {
    "positions": "sinusoidal_halves",
    "source_vocab_size": None,
    "tied": True,
    "norm_eps": 1e-5,
}
FIELDS: Fields = {
    "max_len": Field("max_position_embeddings", 1024),
    "n_encoder_layers": Field("encoder_layers", 12),
    "n_decoder_layers": Field("decoder_layers", 12),
    "d_model": Field("d_model", 1024),
    "n_heads": Field("encoder_attention_heads", 16),
    "n_decoder_heads": Override("decoder_attention_heads", 16, of="n_heads"),
    "d_ff": Field("encoder_ffn_dim", 4096),
    "decoder_d_ff": Override("decoder_ffn_dim", 4096, of="d_ff"),
    "activation": Activation("activation_function", "gelu"),
    "scale_embedding": Field("scale_embedding", False),
    "dropout": Field("dropout", 0.1),
    "attention_dropout": Field("attention_dropout", 0.0),
}
BLOCK = {
    "attention.query_key_value": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
    "attention.output": "self_attn.out_proj",
    "attention_norm": "self_attn_layer_norm",
    "feed_forward.up": "fc1",
    "feed_forward.down": "fc2",
    "feed_forward_norm": "final_layer_norm",
}
CROSS = {
    "cross.query": "encoder_attn.q_proj",
    "cross.key_value": "encoder_attn.k_proj encoder_attn.v_proj",
    "cross.output": "encoder_attn.out_proj",
    "cross_norm": "encoder_attn_layer_norm",
}


def read_config(values: HFConfig, task: str) -> TransformerConfig:
    for fixed in ("normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits"):
        values.expect(fixed, False, 0)
    values.expect("static_position_embeddings", True)
    values.expect("share_encoder_decoder_embeddings", True)
    values.ignore("num_hidden_layers", "encoder_layerdrop", "decoder_layerdrop", "init_std", "activation_dropout",
                  "classif_dropout", "extra_pos_embeddings")  # fmt: skip
    pegasus = values.values["model_type"] == "pegasus"
    vocab_size = values.get("vocab_size", 50265 if pegasus else 58101)
    values.classes(task)
    return TransformerConfig(
        task=task,
        vocab_size=vocab_size,
        positions="sinusoidal_halves",
        wiring="pre_norm" if pegasus else "post_norm",
        tied=values.get("tie_word_embeddings", True),
        output_bias=values.has_tensor("final_logits_bias"),
        **read_fields(values, FIELDS),
        **values.special_tokens(start="decoder_start_token_id", defaults=(0, 0, 1) if pegasus else (58100, 58100, 0)),
    )


def write_config(c: TransformerConfig) -> dict[str, Any]:
    for name, value in FIXED.items():
        if (own := getattr(c, name)) != value and not (own == "sinusoidal" and c.task == "translate"):
            raise CheckpointError(f"Marian's layout has {name}={value!r} and cannot express {name}={own!r}")
    if c.start_id is None:
        raise CheckpointError("Marian's layout names the token that a translation begins with: set start_id")
    pegasus = {"model_type": "pegasus", "architectures": [PEGASUS[c.task]]}
    return {
        **(pegasus if c.wiring == "pre_norm" else {"model_type": "marian"}),
        "is_encoder_decoder": True,
        "vocab_size": c.vocab_size,
        "decoder_vocab_size": c.vocab_size,
        **write_fields(c, FIELDS),
        "activation_dropout": 0.0,
        "tie_word_embeddings": c.tied,
        "share_encoder_decoder_embeddings": True,
        "static_position_embeddings": True,
    }


def layout(c: TransformerConfig) -> Layout:
    rules: dict[str, LayoutRule] = {"target_embedding.tokens.weight": Same("model.shared.weight")}
    copies = {f"model.{side}.embed_tokens.weight": "model.shared.weight" for side in ("encoder", "decoder")}
    heights = {"attention.query_key_value": [c.d_model] * 3, "cross.key_value": [c.d_model] * 2}
    stacks = (("encoder", c.n_encoder_layers, BLOCK), ("decoder", c.n_decoder_layers, BLOCK | CROSS))
    for side, n_layers, names in stacks:
        for layer in range(n_layers):
            rules |= block_rules(f"{side}.{layer}", f"model.{side}.layers.{layer}", names, heights)
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
    """The axis of a weight that runs along the stream: columns where it reads the stream, rows where it writes it."""
    if name.endswith(("tokens.weight", "query_key_value.weight", "query.weight", "key_value.weight", "up.weight")):
        return 1
    return 0 if "norm." in name or ".output." in name or ".down." in name else None
