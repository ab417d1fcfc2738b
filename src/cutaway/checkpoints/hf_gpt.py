"""GPT in the Hugging Face layout (`openai-gpt`)."""

from typing import Any

from cutaway.checkpoints.hf import Keys
from cutaway.checkpoints.hf_shared import decoder_block, head_rules, other_than
from cutaway.checkpoints.layout import Layout, LayoutRule, Same
from cutaway.errors import CheckpointError, ConfigError
from cutaway.families.gpt import GPTConfig
from cutaway.families.parts import either

ARCHITECTURES = {
    "OpenAIGPTLMHeadModel": "language_model",
    "OpenAIGPTForSequenceClassification": "classify",
    "OpenAIGPTModel": "hidden",
}
PREFIX = "transformer."

# what `afn` stands for here; unlike everywhere else, «gelu» is the one with tanh
ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}


def config_in(keys: Keys, task: str) -> GPTConfig:
    d_model, activation = keys.take("n_embd", 768), keys.take("afn", "gelu")
    if activation not in ACTIVATIONS:
        raise ConfigError(f"{keys.where}: afn={activation!r} is not one of {', '.join(ACTIVATIONS)}")
    dropout = keys.take("resid_pdrop", 0.1)
    keys.expect("n_special", 0)
    for unused in ("n_ctx", "predict_special_tokens", "summary_type", "summary_use_proj", "summary_activation",
                   "summary_proj_to_labels", "summary_first_dropout"):  # fmt: skip
        keys.take(unused)
    return GPTConfig(
        task=task,
        vocab_size=keys.take("vocab_size", 40478),
        max_len=keys.take("n_positions", 512),
        n_layers=keys.take("n_layer", 12),
        d_model=d_model,
        n_heads=keys.take("n_head", 12),
        d_ff=4 * d_model,
        activation=ACTIVATIONS[activation],
        norm_eps=keys.take("layer_norm_epsilon", 1e-5),
        dropout=dropout,
        attention_dropout=other_than(dropout, keys.take("attn_pdrop", 0.1)),
        embedding_dropout=other_than(dropout, keys.take("embd_pdrop", 0.1)),
        tied=keys.take("tie_word_embeddings", True),
        **keys.classes(task),
        **keys.special(),
    )


def config_out(c: GPTConfig) -> dict[str, Any]:
    activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    if c.d_ff != 4 * c.d_model or c.activation not in activations:
        raise CheckpointError(
            f"GPT's layout has d_ff = 4 · d_model and one of {', '.join(activations)}; this model has d_ff={c.d_ff}, "
            f"d_model={c.d_model} and activation={c.activation}"
        )
    return {
        "model_type": "openai-gpt",
        "vocab_size": c.vocab_size,
        "n_positions": c.max_len,
        "n_layer": c.n_layers,
        "n_embd": c.d_model,
        "n_head": c.n_heads,
        "afn": activations[c.activation],
        "layer_norm_epsilon": c.norm_eps,
        "resid_pdrop": c.dropout,
        "embd_pdrop": either(c.embedding_dropout, c.dropout),
        "attn_pdrop": either(c.attention_dropout, c.dropout),
        "tie_word_embeddings": c.tied,
    }


def layout(c: GPTConfig) -> Layout:
    rules: dict[str, LayoutRule] = {
        "embedding.tokens.weight": Same("transformer.tokens_embed.weight"),
        "embedding.positions.weight": Same("transformer.positions_embed.weight"),
    }
    for layer in range(c.n_layers):
        rules |= decoder_block(f"decoder.{layer}", f"transformer.h.{layer}")
    return Layout(rules, ignored=(".attn.bias", "position_ids")) | head_rules(
        c.task, tied=c.tied, tokens="transformer.tokens_embed.weight"
    )
