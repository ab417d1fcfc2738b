"""Llama models in GGUF, llama.cpp's layout: the config is in the metadata, and the tensors have names of their own.

llama.cpp rotates neighbouring rows of queries and keys together (0 1, 2 3, …), so its files hold them in that order.
"""

from pathlib import Path
from typing import Any

import torch

from cutaway.checkpoints.config_reader import ConfigReader
from cutaway.checkpoints.gguf_file import GGUFFile
from cutaway.checkpoints.hf_llama import d_head, head_heights
from cutaway.checkpoints.layout import Joined, Layout, LayoutRule, LayoutTable, Same, Turned, read_weights
from cutaway.errors import CheckpointError, ConfigError
from cutaway.families import bare
from cutaway.families.llama import LlamaConfig
from cutaway.model.model import Model
from cutaway.model.positions import Rotary
from cutaway.tokens import Tokenizer, gguf_tokenizer

ARCHITECTURE = "llama"
EMBEDDING, OUTPUT, ROTARY_FACTORS = "token_embd.weight", "output.weight", "rope_freqs.weight"
LOW_FACTOR, HIGH_FACTOR = 1.0, 4.0  # of every Llama from 3.1 on


def read_config(path: Path) -> LlamaConfig:
    return config_in(GGUFFile(path))


def read_tokenizer(path: Path) -> Tokenizer:
    return gguf_tokenizer(GGUFFile(path).metadata, str(path))


def load_model(path: Path, *, dtype: torch.dtype, device: torch.device | str) -> Model:
    """A model from a GGUF file, dequantised."""
    source = GGUFFile(path)
    try:
        config = config_in(source)
        model = bare(config)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None
    return read_weights(model, layout(config, source), source, dtype=dtype, device=device)


def config_in(source: GGUFFile) -> LlamaConfig:
    """The config, from `llama.…` in the metadata and, where that says nothing, from the tensors."""
    architecture = source.metadata.get("general.architecture")
    if architecture != ARCHITECTURE:
        raise CheckpointError(f"{source.path}: architecture {architecture!r} is not supported; {ARCHITECTURE!r} is")
    prefix = f"{ARCHITECTURE}."
    own = {key.removeprefix(prefix): value for key, value in source.metadata.items() if key.startswith(prefix)}
    values = ConfigReader(own, f"{source.path} (its {ARCHITECTURE}.… metadata)")
    values.expect("expert_count", 0)
    values.ignore("expert_used_count", "vocab_size", "tensor_data_layout", "rope.scaling.finetuned")
    n_heads = values.require("attention.head_count", int)
    head_width = values.get("attention.key_length", kind=int)
    values.expect("attention.value_length", head_width)
    d_model = values.require("embedding_length", int)
    if EMBEDDING not in source or source.shape(EMBEDDING)[1:] != (d_model,):
        raise CheckpointError(f"{source.path} has no {EMBEDDING!r} of width embedding_length={d_model}")
    config = LlamaConfig(
        vocab_size=source.shape(EMBEDDING)[0],
        max_len=values.require("context_length", int),
        n_layers=values.require("block_count", int),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=values.get("attention.head_count_kv", n_heads),
        d_head=head_width,
        d_ff=values.require("feed_forward_length", int),
        norm_eps=values.require("attention.layer_norm_rms_epsilon", float),
        window=values.get("attention.sliding_window", kind=int) or None,
        attention_bias="blk.0.attn_q.bias" in source,
        tied=OUTPUT not in source,
        **_read_rotary(values, source),
        **_read_special_tokens(source),
    )
    values.expect("rope.dimension_count", d_head(config))
    values.finish()
    return config


def _read_rotary(values: ConfigReader, source: GGUFFile) -> dict[str, Any]:
    """Base and scaling. Llama 3.1's is stored as a factor per pair, from which its numbers are found and checked."""
    base = {"rotary_base": values.get("rope.freq_base", 10000.0)}
    values.expect("rope.scaling.type", "linear", "none")
    factor = values.get("rope.scaling.factor", kind=float) or values.get("rope.scale_linear", kind=float) or 1.0
    trained_len = values.get("rope.scaling.original_context_length", 8192.0)
    if ROTARY_FACTORS in source:
        if factor != 1.0:
            raise ConfigError(f"{values.where}: both {ROTARY_FACTORS!r} and rope.scaling.factor={factor}")
        numbers = (source.read(ROTARY_FACTORS).max().item(), LOW_FACTOR, HIGH_FACTOR, trained_len)
        return base | {"rotary_scaling": "llama3", "rotary_scaling_numbers": numbers}
    if factor == 1.0 or values.get("rope.scaling.type") == "none":
        return base
    return base | {"rotary_scaling": "linear", "rotary_scaling_numbers": (factor,)}


def _read_special_tokens(source: GGUFFile) -> dict[str, Any]:
    """The special tokens; a text may end with its own end or with the end of a turn in a conversation."""
    values = ConfigReader(source.metadata, str(source.path))
    roles = ("padding", "bos", "eos", "eot", "eom")
    ids = {role: values.get(f"tokenizer.ggml.{role}_token_id", kind=int) for role in roles}
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
    if ROTARY_FACTORS in source:
        plain, scaled = (Rotary(d_head(c), base=c.rotary_base, scaling=how).double() for how in (None, c.scaling()))
        factors = plain.frequencies / scaled.frequencies
        tables[ROTARY_FACTORS] = LayoutTable(tuple(factors.shape), lambda: factors)
    return Layout(rules, tables=tables)


def _block(c: LlamaConfig, ours: str, theirs: str) -> dict[str, LayoutRule]:
    gate_up = [Same(f"{theirs}.ffn_gate.weight"), Same(f"{theirs}.ffn_up.weight")]
    rules: dict[str, LayoutRule] = {
        f"{ours}.attention_norm.weight": Same(f"{theirs}.attn_norm.weight"),
        f"{ours}.feed_forward_norm.weight": Same(f"{theirs}.ffn_norm.weight"),
        f"{ours}.feed_forward.down.weight": Same(f"{theirs}.ffn_down.weight"),
        f"{ours}.feed_forward.gate_up.weight": Joined(gate_up, [c.d_ff] * 2),
    }
    for kind in ("weight", "bias") if c.attention_bias else ("weight",):
        query, key = Turned(f"{theirs}.attn_q.{kind}", c.n_heads), Turned(f"{theirs}.attn_k.{kind}", c.n_kv_heads)
        parts = [query, key, Same(f"{theirs}.attn_v.{kind}")]
        rules[f"{ours}.attention.query_key_value.{kind}"] = Joined(parts, head_heights(c))
        rules[f"{ours}.attention.output.{kind}"] = Same(f"{theirs}.attn_output.{kind}")
    return rules
