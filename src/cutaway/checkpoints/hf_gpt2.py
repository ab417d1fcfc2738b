"""GPT-2 in the Hugging Face layout."""

from typing import Any

from cutaway.checkpoints.hf_config import Activation, Field, Fields, HFConfig, read_fields, write_fields
from cutaway.checkpoints.hf_gpt import DROPOUTS, SIZES, UNUSED
from cutaway.checkpoints.hf_layout import decoder_head, gpt_block_rules
from cutaway.checkpoints.layout import Layout, LayoutRule, Same
from cutaway.families.gpt2 import GPT2Config

ARCHITECTURES = {
    "GPT2LMHeadModel": "language_model",
    "GPT2ForSequenceClassification": "classify",
    "GPT2Model": "hidden",
}
PREFIX = "transformer."


FIELDS: Fields = {
    **SIZES,
    "vocab_size": Field("vocab_size", 50257),
    "max_len": Field("n_positions", 1024),
    "d_ff": Field("n_inner", kind=int),
    "activation": Activation("activation_function", "gelu_new"),
    **DROPOUTS,
}


def read_config(values: HFConfig, task: str) -> GPT2Config:
    ours = read_fields(values, FIELDS)
    if ours["d_ff"] is None:
        ours["d_ff"] = 4 * ours["d_model"]
    values.expect("scale_attn_weights", True)
    values.expect("scale_attn_by_inverse_layer_idx", False)
    values.ignore("reorder_and_upcast_attn", *UNUSED)
    special = values.special_tokens(defaults=(None, 50256, 50256))
    return GPT2Config(task=task, **ours, **values.classes(task), **special)


def write_config(c: GPT2Config) -> dict[str, Any]:
    return {"model_type": "gpt2"} | write_fields(c, FIELDS)


def layout(c: GPT2Config) -> Layout:
    rules: dict[str, LayoutRule] = {
        "embedding.tokens.weight": Same("transformer.wte.weight"),
        "embedding.positions.weight": Same("transformer.wpe.weight"),
        "decoder.final_norm.weight": Same("transformer.ln_f.weight"),
        "decoder.final_norm.bias": Same("transformer.ln_f.bias"),
    }
    for layer in range(c.n_layers):
        rules |= gpt_block_rules(f"decoder.{layer}", f"transformer.h.{layer}")
    return Layout(rules, ignored=(".attn.bias", ".attn.masked_bias")) | decoder_head(
        c.task, tied=c.tied, tokens="transformer.wte.weight"
    )
