"""Fault 22: a GGUF or llama2.c file that is sound as a file but makes no model gives an error that names why."""

import io
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.limits import limits
from helpers.parity.foreign_files import gguf_metadata, gguf_tensors, write_gguf, write_llama2c
from helpers.parity.gguf_llama import made

from cutaway.checkpoints import load, load_tokenizer
from cutaway.errors import CheckpointError, CutawayError

Tensors = dict[str, np.ndarray]


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {other: numbers for other, numbers in tensors.items() if other != name}


def cut(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: tensors[name][:-1]}


def extra(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: np.zeros(4, "f4")}


TENSORS = {
    "no embedding": (without("token_embd.weight"), r"has no 'token_embd.weight' of width embedding_length=24"),
    "no norm": (without("output_norm.weight"), r"lacks 'output_norm.weight'"),
    "no query": (without("blk.1.attn_q.weight"), r"lacks 'blk.1.attn_q.weight'"),
    "short query": (
        cut("blk.1.attn_q.weight"),
        r"'blk.1.attn_q.weight' has shape \(23, 24\), but \(24, 24\) is wanted",
    ),
    "short norm": (cut("blk.0.attn_norm.weight"), r"'blk.0.attn_norm.weight' has shape \(23,\)"),
    "short output": (cut("output.weight"), r"'output.weight' has shape \(52, 24\)"),
    "an expert": (extra("blk.0.ffn_gate.0.weight"), r"'blk.0.ffn_gate.0.weight', for which this model has no place"),
    "a bias": (extra("blk.1.attn_q.bias"), r"'blk.1.attn_q.bias', for which this model has no place"),
    "a layer too many": (extra("blk.2.attn_norm.weight"), r"'blk.2.attn_norm.weight'"),
}


@pytest.mark.parametrize("fault", TENSORS)
def test_fault_22_gguf_tensors_that_do_not_fit_are_named(tmp_path: Path, fault: str):
    change, named = TENSORS[fault]
    theirs = made()
    path = write_gguf(tmp_path / "x.gguf", gguf_metadata(theirs.config), change(gguf_tensors(theirs)))
    with pytest.raises(CheckpointError, match=named):
        load(path)


METADATA: list[tuple[str, Any, str]] = [
    ("llama.block_count", 10**9, "n_layers=1000000000 is not between 1 and 1024"),
    ("llama.block_count", 0, "n_layers=0"),
    ("llama.block_count", 3, "lacks 'blk.2"),
    ("llama.block_count", 1, "'blk.1"),
    ("llama.attention.head_count", 0, "n_heads=0"),
    ("llama.attention.head_count", 2**31, "n_heads=2147483648"),
    ("llama.attention.head_count", 5, "d_model=24 is not divisible by n_heads=5"),
    ("llama.attention.head_count", [4, 4], r"attention.head_count=\[4, 4\] is not of type int"),
    ("llama.attention.head_count_kv", 0, "n_kv_heads=0"),
    ("llama.attention.head_count_kv", 3, "n_heads=4 is not divisible by n_kv_heads=3"),
    ("llama.attention.key_length", 10**9, "d_head=1000000000"),
    ("llama.attention.key_length", 7, "attention.value_length|rope.dimension_count"),
    ("llama.embedding_length", 10**9, "token_embd.weight"),
    ("llama.embedding_length", "24", "embedding_length='24' is not of type int"),
    ("llama.feed_forward_length", 10**9, "d_ff=1000000000"),
    ("llama.feed_forward_length", 39, "has shape"),
    ("llama.context_length", 2**31, "max_len=2147483648"),
    ("llama.context_length", None, "'context_length' is missing"),
    ("llama.attention.layer_norm_rms_epsilon", float("nan"), "norm_eps=nan"),
    ("llama.rope.freq_base", 0.0, "rotary_base=0.0"),
    ("llama.rope.freq_base", -1.0, "rotary_base=-1.0"),
    ("llama.rope.dimension_count", 2, "rope.dimension_count=2"),
    ("llama.rope.scaling.type", "yarn", "rope.scaling.type='yarn'"),
    ("llama.rope.scaling.factor", -2.0, "takes factor, each above 0"),
    ("llama.expert_count", 8, "expert_count=8"),
    ("llama.attention.causal", 0, "unknown key 'attention.causal'"),
    ("tokenizer.ggml.eos_token_id", 53, "names token 53"),
    ("tokenizer.ggml.bos_token_id", "<s>", "bos_token_id='<s>' is not of type int"),
]


@pytest.mark.parametrize(("key", "value", "named"), METADATA)
def test_fault_22_gguf_metadata_that_make_no_model_are_named(tmp_path: Path, key: str, value: Any, named: str):
    theirs = made()
    metadata = {
        name: number for name, number in (gguf_metadata(theirs.config) | {key: value}).items() if number is not None
    }
    path = write_gguf(tmp_path / "x.gguf", metadata, gguf_tensors(theirs))
    with limits(), pytest.raises(CheckpointError, match=named) as caught:
        load(path)
    assert "x.gguf" in str(caught.value)


@pytest.mark.parametrize("architecture", ["gpt2", "qwen2", "mamba"])
def test_fault_22_another_architecture_is_refused_by_name(tmp_path: Path, architecture: str):
    path = write_gguf(tmp_path / "x.gguf", {}, {"token_embd.weight": np.zeros((3, 4), "f4")}, architecture=architecture)
    with pytest.raises(CheckpointError, match=f"architecture '{architecture}' is not supported; 'llama' is"):
        load(path)


def llama2c_head(**changes: int) -> bytes:
    fields = {"dim": 24, "hidden": 40, "layers": 2, "heads": 4, "kv_heads": 2, "vocab": 53, "len": 32}
    return struct.pack("<7i", *(fields | changes).values())


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 10**9},
        {"heads": 0},
        {"heads": -4},
        {"heads": 5},
        {"kv_heads": 3},
        {"vocab": -(2**31)},
        {"dim": 0},
        {"dim": 2**24, "hidden": 2**24, "layers": 2**24},
        {"len": 31},
        {"hidden": 41},
    ],
    ids=str,
)
def test_fault_22_a_llama2c_header_must_fit_its_file(tmp_path: Path, changes: dict[str, int]):
    path = write_llama2c(tmp_path / "x.bin", made(num_key_value_heads=2, tie_word_embeddings=True), 0)
    path.write_bytes(llama2c_head(**changes) + path.read_bytes()[28:])
    with limits(), pytest.raises(CheckpointError, match=r"x\.bin"):
        load(path)


def test_fault_22_odd_heads_cannot_be_turned(tmp_path: Path):
    path = tmp_path / "x.bin"
    head = llama2c_head(dim=6, hidden=1, layers=1, heads=2, kv_heads=2, vocab=3, len=1)
    numbers = 3 * 6 + 6 + 4 * 36 + 6 + 3 * 6 + 6 + 2
    path.write_bytes(head + bytes(4 * numbers))
    with pytest.raises(CheckpointError, match="d_head=3 is odd"):
        load(path)


def test_fault_18_a_pickle_or_an_archive_named_bin_is_refused_by_what_it_is(tmp_path: Path):
    buffer = io.BytesIO()
    torch.save({"weight": torch.zeros(2)}, buffer)
    for data, kind in (
        (buffer.getvalue(), "a zip archive, which is how torch.save writes pickles"),
        (pickle.dumps({"weight": 1}), "a pickle, which could run code when read"),
        (b"GGUF" + bytes(100), "GGUF: name it .gguf"),
        (b"", "it is empty"),
    ):
        path = tmp_path / "pytorch_model.bin"
        path.write_bytes(data)
        for read in (load, load_tokenizer):
            (tmp_path / "tokenizer.bin").write_bytes(b"")
            with pytest.raises(CheckpointError, match=f"pytorch_model.bin is not a llama2.c model: .*{kind}"):
                read(path)


@pytest.mark.parametrize("dim", [128, 384, 640, 1152])
def test_a_model_whose_width_looks_like_a_pickle_is_read_all_the_same(tmp_path: Path, dim: int):
    theirs = made(hidden_size=dim, intermediate_size=4, num_hidden_layers=1, num_attention_heads=2)
    path = write_llama2c(tmp_path / "x.bin", theirs, 0)
    assert path.read_bytes()[0] == 0x80
    assert load(path).config.d_model == dim


@pytest.mark.parametrize("name", ["x.safetensors", "x.pt", "x", "missing"])
def test_other_files_are_refused_with_what_is_read(tmp_path: Path, name: str):
    if name != "missing":
        (tmp_path / name).write_bytes(b"x" * 100)
    said = r"does not exist|reads folders with a config.json, .gguf files and|give its folder"
    with pytest.raises(CutawayError, match=said):
        load(tmp_path / name)
