"""Llama in the Hugging Face layout, and Mistral, which is Llama with a window."""

from typing import Any

from cutaway.checkpoints.hf import Keys
from cutaway.checkpoints.hf_shared import activation_out, head_rules, joined_rule, linear_rules, other_than
from cutaway.checkpoints.layout import Layout, LayoutRule, Same
from cutaway.errors import CheckpointError, ConfigError
from cutaway.families.llama import LlamaConfig
from cutaway.families.parts import either

TASKS = {"ForCausalLM": "language_model", "ForSequenceClassification": "classify", "Model": "hidden"}
ARCHITECTURES = {f"{name}{ending}": task for name in ("Llama", "Mistral") for ending, task in TASKS.items()}
PREFIX = "model."

TRAINED_LEN = "original_max_position_embeddings"
# their rope_type → their names for the numbers of our scaling of the same name
SCALINGS = {"linear": ("factor",), "llama3": ("factor", "low_freq_factor", "high_freq_factor", TRAINED_LEN)}


def config_in(keys: Keys, task: str) -> LlamaConfig:
    mistral = keys.values.get("model_type") == "mistral"
    n_heads = keys.take("num_attention_heads", 32)
    max_len = keys.take("max_position_embeddings", 131072 if mistral else 2048)
    if not mistral:
        keys.expect("mlp_bias", False)
        keys.expect("rope_interleaved", False)  # SmolLM2 says that it is a Llama, and what it shares with all of them
        keys.take("is_llama_config")
    return LlamaConfig(
        task=task,
        vocab_size=keys.take("vocab_size", 32000),
        max_len=max_len,
        n_layers=keys.take("num_hidden_layers", 32),
        d_model=keys.take("hidden_size", 4096),
        n_heads=n_heads,
        n_kv_heads=keys.take("num_key_value_heads", 8 if mistral else n_heads, null=True) or n_heads,
        d_head=keys.take("head_dim", kind=int),
        d_ff=keys.take("intermediate_size", 14336 if mistral else 11008),
        activation=keys.activation("hidden_act", "silu"),
        window=keys.take("sliding_window", 4096, null=True) if mistral else None,
        attention_bias=False if mistral else keys.take("attention_bias", False),
        norm_eps=keys.take("rms_norm_eps", 1e-6),
        attention_dropout=other_than(0.0, keys.take("attention_dropout", 0.0)),
        tied=keys.take("tie_word_embeddings", False),
        **_rotary_in(keys, max_len),
        **keys.classes(task),
        **keys.special(defaults=(None, 1, 2)),
    )


def _rotary_in(keys: Keys, max_len: int) -> dict[str, Any]:
    """Base and scaling: one dictionary since transformers 5, before that `rope_theta` beside `rope_scaling`."""
    base = keys.take("rope_theta", 10000.0)
    new, old = (keys.take(name, {}, null=True) or {} for name in ("rope_parameters", "rope_scaling"))
    stated = Keys({TRAINED_LEN: max_len} | new | old, f"{keys.where}, rotary positions")
    kind = stated.take("rope_type", stated.take("type", "default"))
    rotary = {"rotary_base": stated.take("rope_theta", base)}
    stated.take(TRAINED_LEN)  # stated for all kinds, looked at by one
    stated.expect("partial_rotary_factor", 1.0, None)
    if kind in SCALINGS:
        numbers = tuple(stated.take(name, kind=float) for name in SCALINGS[kind])
        if None in numbers:
            raise ConfigError(f"{keys.where}: rope_type={kind!r} needs {SCALINGS[kind][numbers.index(None)]!r}")
        rotary |= {"rotary_scaling": kind, "rotary_scaling_numbers": numbers}
    elif kind != "default":
        raise ConfigError(f"{keys.where}: rope_type={kind!r} is not supported; default, {', '.join(SCALINGS)} are")
    stated.finish()
    return rotary


def config_out(c: LlamaConfig) -> dict[str, Any]:
    name = "Llama" if c.window is None else "Mistral"
    endings = {"regress": "ForSequenceClassification"} | {task: ending for ending, task in TASKS.items()}
    if c.window is not None and c.attention_bias:
        raise CheckpointError("no Hugging Face layout has both window and attention_bias: Mistral has no biases")
    if c.window is None and c.d_model % c.n_heads:
        raise CheckpointError(f"the Llama layout wants d_model={c.d_model} to be divisible by n_heads={c.n_heads}")
    values = {
        "model_type": name.lower(),
        "architectures": [name + endings[c.task]],
        "vocab_size": c.vocab_size,
        "max_position_embeddings": c.max_len,
        "num_hidden_layers": c.n_layers,
        "hidden_size": c.d_model,
        "num_attention_heads": c.n_heads,
        "num_key_value_heads": c.n_kv_heads,
        "head_dim": _d_head(c),
        "intermediate_size": c.d_ff,
        "hidden_act": activation_out(c.activation),
        "rms_norm_eps": c.norm_eps,
        "attention_dropout": either(c.attention_dropout, c.dropout),  # their only dropout
        "tie_word_embeddings": c.tied,
    }
    own = {"attention_bias": c.attention_bias, "mlp_bias": False} if c.window is None else {"sliding_window": c.window}
    return values | own | _rotary_out(c)


def _rotary_out(c: LlamaConfig) -> dict[str, Any]:
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
    for layer in range(c.n_layers):
        rules |= _block(c, f"decoder.{layer}", f"model.layers.{layer}")
    return Layout(rules, ignored=(".rotary_emb.inv_freq",)) | head_rules(
        c.task, tied=c.tied, tokens="model.embed_tokens.weight"
    )


def _block(c: LlamaConfig, ours: str, theirs: str) -> dict[str, LayoutRule]:
    attention, mlp = f"{theirs}.self_attn", f"{theirs}.mlp"
    heights = [heads * _d_head(c) for heads in (c.n_heads, c.n_kv_heads, c.n_kv_heads)]
    projections, bias = [f"{attention}.{x}_proj" for x in "qkv"], c.attention_bias
    return (
        joined_rule(f"{ours}.attention.query_key_value", projections, heights, bias=bias)
        | linear_rules(f"{ours}.attention.output", f"{attention}.o_proj", bias=bias)
        | linear_rules(f"{ours}.attention_norm", f"{theirs}.input_layernorm", bias=False)
        | joined_rule(f"{ours}.feed_forward.gate_up", [f"{mlp}.gate_proj", f"{mlp}.up_proj"], [c.d_ff] * 2, bias=False)
        | linear_rules(f"{ours}.feed_forward.down", f"{mlp}.down_proj", bias=False)
        | linear_rules(f"{ours}.feed_forward_norm", f"{theirs}.post_attention_layernorm", bias=False)
    )


def _d_head(c: LlamaConfig) -> int:
    return c.d_head or c.d_model // c.n_heads
