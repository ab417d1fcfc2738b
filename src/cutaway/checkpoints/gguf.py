"""Llama models in GGUF, llama.cpp's layout: the metadata are the config, the tensors have names of their own.

llama.cpp turns neighbouring rows of queries and keys together, (0 1, 2 3, …), so its files hold them in that order.
"""

from pathlib import Path
from typing import Any

import torch

from cutaway.checkpoints.gguf_file import GGUFFile
from cutaway.checkpoints.hf import Keys
from cutaway.checkpoints.layout import Joined, Layout, LayoutRule, LayoutTable, Same, Turned, read_weights
from cutaway.errors import CheckpointError, ConfigError
from cutaway.families import bare
from cutaway.families.llama import LlamaConfig
from cutaway.model.model import Model
from cutaway.model.positions import Rotary

ARCHITECTURE = "llama"
EMBEDDING, OUTPUT, STRETCHED = "token_embd.weight", "output.weight", "rope_freqs.weight"
SLOW, FAST = 1.0, 4.0  # of every Llama from 3.1 on


def load_gguf(path: Path, *, dtype: torch.dtype, device: torch.device | str) -> Model:
    """A model from a GGUF file, dequantised."""
    source = GGUFFile(path)
    try:
        config = config_in(source)
        model = bare(config)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None
    return read_weights(model, layout(config, source), source, dtype=dtype, device=device)


def config_in(source: GGUFFile) -> LlamaConfig:
    """The numbers, from `llama.…` in the metadata and, where it is silent, from the tensors."""
    named = source.metadata.get("general.architecture")
    if named != ARCHITECTURE:
        raise CheckpointError(f"{source.path}: architecture {named!r} is not read; {ARCHITECTURE!r} is")
    prefix = f"{ARCHITECTURE}."
    ours = {key.removeprefix(prefix): value for key, value in source.metadata.items() if key.startswith(prefix)}
    keys = Keys(ours, f"{source.path} (its {ARCHITECTURE}.… metadata)")
    keys.expect("expert_count", 0)
    for unused in ("expert_used_count", "vocab_size", "tensor_data_layout", "rope.scaling.finetuned"):
        keys.take(unused)
    n_heads = needed_key(keys, "attention.head_count", int)
    d_head = keys.take("attention.key_length", kind=int)
    keys.expect("attention.value_length", d_head)
    d_model = needed_key(keys, "embedding_length", int)
    if EMBEDDING not in source or source.shape(EMBEDDING)[1:] != (d_model,):
        raise CheckpointError(f"{source.path} holds no {EMBEDDING!r} of width embedding_length={d_model}")
    config = LlamaConfig(
        vocab_size=source.shape(EMBEDDING)[0],
        max_len=needed_key(keys, "context_length", int),
        n_layers=needed_key(keys, "block_count", int),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=keys.take("attention.head_count_kv", n_heads),
        d_head=d_head,
        d_ff=needed_key(keys, "feed_forward_length", int),
        norm_eps=needed_key(keys, "attention.layer_norm_rms_epsilon", float),
        window=keys.take("attention.sliding_window", kind=int) or None,
        attention_bias="blk.0.attn_q.bias" in source,
        tied=OUTPUT not in source,
        **_rotary_in(keys, source),
        **_special_in(source),
    )
    keys.expect("rope.dimension_count", config.d_head or config.d_model // config.n_heads)
    keys.finish()
    return config


def needed_key(keys: Keys, name: str, kind: type) -> Any:
    if (value := keys.take(name, kind=kind)) is None:
        raise ConfigError(f"{name!r} is missing in {keys.where}")
    return value


def _rotary_in(keys: Keys, source: GGUFFile) -> dict[str, Any]:
    """Base and scaling. Llama 3.1's is stored as a factor per pair; its numbers are found again here, and checked."""
    base = {"rotary_base": keys.take("rope.freq_base", 10000.0)}
    keys.expect("rope.scaling.type", "linear", "none")
    factor = keys.take("rope.scaling.factor", kind=float) or keys.take("rope.scale_linear", kind=float) or 1.0
    trained_len = keys.take("rope.scaling.original_context_length", 8192.0)
    if STRETCHED in source:
        if factor != 1.0:
            raise ConfigError(f"{keys.where}: both {STRETCHED!r} and rope.scaling.factor={factor}")
        numbers = (source.read(STRETCHED).max().item(), SLOW, FAST, trained_len)
        return base | {"rotary_scaling": "llama3", "rotary_scaling_numbers": numbers}
    if factor == 1.0 or keys.take("rope.scaling.type") == "none":
        return base
    return base | {"rotary_scaling": "linear", "rotary_scaling_numbers": (factor,)}


def _special_in(source: GGUFFile) -> dict[str, Any]:
    """The tokens with a role; a text may end with its own end or with the end of a turn in a conversation."""
    keys = Keys(source.metadata, str(source.path))
    roles = ("padding", "bos", "eos", "eot", "eom")
    ids = {role: keys.take(f"tokenizer.ggml.{role}_token_id", kind=int) for role in roles}
    ends = tuple(dict.fromkeys(ids[role] for role in ("eos", "eot", "eom") if ids[role] is not None))
    return {"pad_id": ids["padding"], "start_id": ids["bos"], "end_ids": ends or None}


def layout(c: LlamaConfig, source: GGUFFile) -> Layout:
    rules: dict[str, LayoutRule] = {
        "embedding.tokens.weight": Same(EMBEDDING),
        "decoder.final_norm.weight": Same("output_norm.weight"),
    }
    for layer in range(c.n_layers):
        rules |= _block(c, f"decoder.{layer}", f"blk.{layer}")
    if not c.tied:
        rules["head.weight"] = Same(OUTPUT)
    tables = {}
    if STRETCHED in source:
        d_head = c.d_head or c.d_model // c.n_heads
        plain, scaled = (Rotary(d_head, base=c.rotary_base, scaling=how).double() for how in (None, c.scaling()))
        stretched = plain.frequencies / scaled.frequencies
        tables[STRETCHED] = LayoutTable(tuple(stretched.shape), lambda: stretched)
    return Layout(rules, tables=tables)


def _block(c: LlamaConfig, ours: str, theirs: str) -> dict[str, LayoutRule]:
    d_head = c.d_head or c.d_model // c.n_heads
    heights = [heads * d_head for heads in (c.n_heads, c.n_kv_heads, c.n_kv_heads)]
    rules: dict[str, LayoutRule] = {
        f"{ours}.attention_norm.weight": Same(f"{theirs}.attn_norm.weight"),
        f"{ours}.feed_forward_norm.weight": Same(f"{theirs}.ffn_norm.weight"),
        f"{ours}.feed_forward.down.weight": Same(f"{theirs}.ffn_down.weight"),
        f"{ours}.feed_forward.gate_up.weight": Joined(
            [Same(f"{theirs}.ffn_gate.weight"), Same(f"{theirs}.ffn_up.weight")], [c.d_ff] * 2
        ),
    }
    for kind in ("weight", "bias") if c.attention_bias else ("weight",):
        turned = [Turned(f"{theirs}.attn_q.{kind}", c.n_heads), Turned(f"{theirs}.attn_k.{kind}", c.n_kv_heads)]
        rules[f"{ours}.attention.query_key_value.{kind}"] = Joined([*turned, Same(f"{theirs}.attn_v.{kind}")], heights)
        rules[f"{ours}.attention.output.{kind}"] = Same(f"{theirs}.attn_output.{kind}")
    return rules
