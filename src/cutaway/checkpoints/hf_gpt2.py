"""GPT-2 in the Hugging Face layout."""

from typing import Any

from cutaway.checkpoints.hf import Keys
from cutaway.checkpoints.hf_shared import activation_out, decoder_block, head_rules, other_than
from cutaway.checkpoints.layout import Layout, LayoutRule, Same
from cutaway.families.gpt2 import GPT2Config
from cutaway.families.parts import either

ARCHITECTURES = {
    "GPT2LMHeadModel": "language_model",
    "GPT2ForSequenceClassification": "classify",
    "GPT2Model": "hidden",
}
PREFIX = "transformer."


def config_in(keys: Keys, task: str) -> GPT2Config:
    d_model, d_ff = keys.take("n_embd", 768), keys.take("n_inner", kind=int)
    dropout = keys.take("resid_pdrop", 0.1)
    keys.expect("scale_attn_weights", True)
    keys.expect("scale_attn_by_inverse_layer_idx", False)
    for unused in ("reorder_and_upcast_attn", "n_ctx", "summary_type", "summary_use_proj", "summary_activation",
                   "summary_proj_to_labels", "summary_first_dropout"):  # fmt: skip
        keys.take(unused)
    return GPT2Config(
        task=task,
        vocab_size=keys.take("vocab_size", 50257),
        max_len=keys.take("n_positions", 1024),
        n_layers=keys.take("n_layer", 12),
        d_model=d_model,
        n_heads=keys.take("n_head", 12),
        d_ff=4 * d_model if d_ff is None else d_ff,
        activation=keys.activation("activation_function", "gelu_new"),
        norm_eps=keys.take("layer_norm_epsilon", 1e-5),
        dropout=dropout,
        attention_dropout=other_than(dropout, keys.take("attn_pdrop", 0.1)),
        embedding_dropout=other_than(dropout, keys.take("embd_pdrop", 0.1)),
        tied=keys.take("tie_word_embeddings", True),
        **keys.classes(task),
        **keys.special(defaults=(None, 50256, 50256)),
    )


def config_out(c: GPT2Config) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "vocab_size": c.vocab_size,
        "n_positions": c.max_len,
        "n_layer": c.n_layers,
        "n_embd": c.d_model,
        "n_head": c.n_heads,
        "n_inner": c.d_ff,
        "activation_function": activation_out(c.activation),
        "layer_norm_epsilon": c.norm_eps,
        "resid_pdrop": c.dropout,
        "embd_pdrop": either(c.embedding_dropout, c.dropout),
        "attn_pdrop": either(c.attention_dropout, c.dropout),
        "tie_word_embeddings": c.tied,
    }


def layout(c: GPT2Config) -> Layout:
    rules: dict[str, LayoutRule] = {
        "embedding.tokens.weight": Same("transformer.wte.weight"),
        "embedding.positions.weight": Same("transformer.wpe.weight"),
        "decoder.final_norm.weight": Same("transformer.ln_f.weight"),
        "decoder.final_norm.bias": Same("transformer.ln_f.bias"),
    }
    for layer in range(c.n_layers):
        rules |= decoder_block(f"decoder.{layer}", f"transformer.h.{layer}")
    return Layout(rules, ignored=(".attn.bias", ".attn.masked_bias")) | head_rules(
        c.task, tied=c.tied, tokens="transformer.wte.weight"
    )
