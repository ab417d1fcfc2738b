"""Llama in the Hugging Face layout, and Mistral, which is Llama with a window."""

from typing import Any

from cutaway.checkpoints.config_reader import ConfigReader
from cutaway.checkpoints.hf_config import (
    Activation,
    Field,
    Fields,
    HFConfig,
    Override,
    read_fields,
    write_fields,
)
from cutaway.checkpoints.hf_layout import block_rules, decoder_head
from cutaway.checkpoints.layout import Layout, LayoutRule, Same
from cutaway.errors import CheckpointError, ConfigError
from cutaway.families.llama import LlamaConfig

TASKS = {"ForCausalLM": "language_model", "ForSequenceClassification": "classify", "Model": "hidden"}
ARCHITECTURES = {f"{name}{ending}": task for name in ("Llama", "Mistral") for ending, task in TASKS.items()}
PREFIX = "model."

TRAINED_LEN = "original_max_position_embeddings"
# their rope_type → their names for the numbers of our scaling of the same name
SCALINGS = {"linear": ("factor",), "llama3": ("factor", "low_freq_factor", "high_freq_factor", TRAINED_LEN)}


BLOCK = {
    "attention.query_key_value": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "attention_norm": "input_layernorm",
    "feed_forward.gate_up": "mlp.gate_proj mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
    "feed_forward_norm": "post_attention_layernorm",
}


def fields(mistral: bool) -> Fields:
    return {
        "vocab_size": Field("vocab_size", 32000),
        "max_len": Field("max_position_embeddings", 131072 if mistral else 2048),
        "n_layers": Field("num_hidden_layers", 32),
        "d_model": Field("hidden_size", 4096),
        "n_heads": Field("num_attention_heads", 32),
        "n_kv_heads": Field("num_key_value_heads", 8 if mistral else None, int, null=True),
        "d_head": Field("head_dim", kind=int),
        "d_ff": Field("intermediate_size", 14336 if mistral else 11008),
        "activation": Activation("hidden_act", "silu"),
        "norm_eps": Field("rms_norm_eps", 1e-6),
        "attention_dropout": Override("attention_dropout", 0.0, of="dropout"),  # their only dropout
        "tied": Field("tie_word_embeddings", False),
    }


def read_config(values: HFConfig, task: str) -> LlamaConfig:
    mistral = values.values.get("model_type") == "mistral"
    ours = read_fields(values, fields(mistral))
    ours["n_kv_heads"] = ours["n_kv_heads"] or ours["n_heads"]
    if mistral:
        ours["window"] = values.get("sliding_window", 4096, null=True)
    else:
        values.expect("mlp_bias", False)
        values.expect("rope_interleaved", False)  # stated by SmolLM2, which is a Llama
        values.ignore("is_llama_config")
        ours["attention_bias"] = values.get("attention_bias", False)
    ours |= _read_rotary(values, ours["max_len"])
    return LlamaConfig(task=task, **ours, **values.classes(task), **values.special_tokens(defaults=(None, 1, 2)))


def _read_rotary(values: HFConfig, max_len: int) -> dict[str, Any]:
    """Base and scaling: one dictionary since transformers 5, before that `rope_theta` beside `rope_scaling`."""
    base = values.get("rope_theta", 10000.0)
    new, old = (values.get(name, {}, null=True) or {} for name in ("rope_parameters", "rope_scaling"))
    stated = ConfigReader({TRAINED_LEN: max_len} | new | old, f"{values.where}, rotary positions")
    kind = stated.get("rope_type", stated.get("type", "default"))
    rotary = {"rotary_base": stated.get("rope_theta", base)}
    stated.ignore(TRAINED_LEN)  # stated with every kind, used by one
    stated.expect("partial_rotary_factor", 1.0, None)
    if kind in SCALINGS:
        numbers = tuple(stated.get(name, kind=float) for name in SCALINGS[kind])
        if None in numbers:
            raise ConfigError(f"{values.where}: rope_type={kind!r} needs {SCALINGS[kind][numbers.index(None)]!r}")
        rotary |= {"rotary_scaling": kind, "rotary_scaling_numbers": numbers}
    elif kind != "default":
        raise ConfigError(f"{values.where}: rope_type={kind!r} is not supported; default, {', '.join(SCALINGS)} are")
    stated.finish()
    return rotary


def write_config(c: LlamaConfig) -> dict[str, Any]:
    mistral = c.window is not None
    name = "Mistral" if mistral else "Llama"
    endings = {"regress": "ForSequenceClassification"} | {task: ending for ending, task in TASKS.items()}
    if mistral and c.attention_bias:
        raise CheckpointError("no Hugging Face layout has both window and attention_bias: Mistral has no biases")
    if not mistral and c.d_model % c.n_heads:
        raise CheckpointError(f"in the Llama layout d_model={c.d_model} must be divisible by n_heads={c.n_heads}")
    values = {"model_type": name.lower(), "architectures": [name + endings[c.task]]} | write_fields(c, fields(mistral))
    own = {"sliding_window": c.window} if mistral else {"attention_bias": c.attention_bias, "mlp_bias": False}
    return values | {"head_dim": d_head(c)} | own | _write_rotary(c)


def _write_rotary(c: LlamaConfig) -> dict[str, Any]:
    """For transformers 5 and, the last two, for transformers 4."""
    if c.rotary_scaling is None:
        stated: dict[str, Any] = {"rope_type": "default"}
    else:
        names = SCALINGS[c.rotary_scaling]
        stated = {"rope_type": c.rotary_scaling, **dict(zip(names, c.rotary_scaling_numbers or (), strict=True))}
        if TRAINED_LEN in stated:
            stated[TRAINED_LEN] = int(stated[TRAINED_LEN])
    return {
        "rope_parameters": {"rope_theta": c.rotary_base, **stated},
        "rope_theta": c.rotary_base,
        "rope_scaling": None if c.rotary_scaling is None else stated,
    }


def layout(c: LlamaConfig) -> Layout:
    rules: dict[str, LayoutRule] = {
        "embedding.tokens.weight": Same("model.embed_tokens.weight"),
        "decoder.final_norm.weight": Same("model.norm.weight"),
    }
    attention = ("attention.query_key_value", "attention.output")
    heights = {"attention.query_key_value": head_heights(c), "feed_forward.gate_up": [c.d_ff] * 2}
    no_bias = [part for part in BLOCK if not (c.attention_bias and part in attention)]
    for layer in range(c.n_layers):
        rules |= block_rules(f"decoder.{layer}", f"model.layers.{layer}", BLOCK, heights, no_bias=no_bias)
    head = decoder_head(c.task, tied=c.tied, tokens="model.embed_tokens.weight")
    return Layout(rules, ignored=(".rotary_emb.inv_freq",)) | head


def head_heights(c: LlamaConfig) -> list[int]:
    """The rows of query, key and value."""
    return [heads * d_head(c) for heads in (c.n_heads, c.n_kv_heads, c.n_kv_heads)]


def d_head(c: LlamaConfig) -> int:
    return c.d_head or c.d_model // c.n_heads
