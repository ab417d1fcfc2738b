"""GPT in the Hugging Face layout (`openai-gpt`)."""

from typing import Any

from cutaway.checkpoints.hf_config import Field, Fields, HFConfig, Override, read_fields, write_fields
from cutaway.checkpoints.hf_layout import decoder_head, gpt_block_rules
from cutaway.checkpoints.layout import Layout, LayoutRule, Same
from cutaway.errors import CheckpointError, ConfigError
from cutaway.families.gpt import GPTConfig

ARCHITECTURES = {
    "OpenAIGPTLMHeadModel": "language_model",
    "OpenAIGPTForSequenceClassification": "classify",
    "OpenAIGPTModel": "hidden",
}
PREFIX = "transformer."

# What `afn` may be. Unlike everywhere else, "gelu" is the one with tanh.
ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
SIZES: Fields = {
    "vocab_size": Field("vocab_size", 40478),
    "max_len": Field("n_positions", 512),
    "n_layers": Field("n_layer", 12),
    "d_model": Field("n_embd", 768),
    "n_heads": Field("n_head", 12),
}
DROPOUTS: Fields = {
    "norm_eps": Field("layer_norm_epsilon", 1e-5),
    "dropout": Field("resid_pdrop", 0.1),
    "embedding_dropout": Override("embd_pdrop", 0.1, of="dropout"),
    "attention_dropout": Override("attn_pdrop", 0.1, of="dropout"),
    "tied": Field("tie_word_embeddings", True),
}
UNUSED = ("n_ctx", "predict_special_tokens", "summary_type", "summary_use_proj", "summary_activation",
          "summary_proj_to_labels", "summary_first_dropout")  # fmt: skip


def read_config(values: HFConfig, task: str) -> GPTConfig:
    ours, activation = read_fields(values, SIZES | DROPOUTS), values.get("afn", "gelu")
    if activation not in ACTIVATIONS:
        raise ConfigError(f"{values.where}: afn={activation!r} is not one of {', '.join(ACTIVATIONS)}")
    values.expect("n_special", 0)
    values.ignore(*UNUSED)
    return GPTConfig(
        task=task,
        d_ff=4 * ours["d_model"],
        activation=ACTIVATIONS[activation],
        **ours,
        **values.classes(task),
        **values.special_tokens(),
    )


def write_config(c: GPTConfig) -> dict[str, Any]:
    activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    if c.d_ff != 4 * c.d_model or c.activation not in activations:
        raise CheckpointError(
            f"GPT's layout has d_ff = 4 · d_model and one of {', '.join(activations)}; this model has d_ff={c.d_ff}, "
            f"d_model={c.d_model} and activation={c.activation}"
        )
    activation = {"afn": activations[c.activation]}
    return {"model_type": "openai-gpt"} | write_fields(c, SIZES) | activation | write_fields(c, DROPOUTS)


def layout(c: GPTConfig) -> Layout:
    rules: dict[str, LayoutRule] = {
        "embedding.tokens.weight": Same("transformer.tokens_embed.weight"),
        "embedding.positions.weight": Same("transformer.positions_embed.weight"),
    }
    for layer in range(c.n_layers):
        rules |= gpt_block_rules(f"decoder.{layer}", f"transformer.h.{layer}")
    return Layout(rules, ignored=(".attn.bias", "position_ids")) | decoder_head(
        c.task, tied=c.tied, tokens="transformer.tokens_embed.weight"
    )
