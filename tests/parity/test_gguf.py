"""GGUF files of Llama models, written as llama.cpp writes them, against the model that they were made from."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from helpers.parity.foreign_files import gguf_metadata, gguf_tensors, quantised, write_gguf
from helpers.parity.gguf_llama import made
from helpers.parity.tiny_mistral import tiny as mistral
from helpers.parity.twins import assert_close, draw
from transformers import LlamaForCausalLM, MistralForCausalLM

from cutaway.checkpoints import load
from cutaway.errors import CheckpointError

KINDS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q6_K", "Q4_K"]
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 2},
        {"num_key_value_heads": 2, "tie_word_embeddings": True},
        {"num_key_value_heads": 2, "attention_bias": True},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 77.0}},
    ],
)
def test_logits_are_those_of_the_model_it_was_made_from(tmp_path: Path, changes: dict[str, Any]):
    theirs, ids = made(**changes), torch.randint(3, 53, (2, 12))
    path = write_gguf(tmp_path / "tiny.gguf", gguf_metadata(theirs.config), gguf_tensors(theirs))
    ours = load(path)
    assert (ours.config.start_id, ours.config.end_ids) == (1, (2,))
    assert_close(ours(ids), theirs(ids).logits, 1e-5)


def test_heads_may_be_wider_than_the_model(tmp_path: Path):
    theirs, ids = made(head_dim=10), torch.randint(3, 53, (2, 12))
    wide = {"llama.attention.key_length": 10, "llama.attention.value_length": 10}
    path = write_gguf(tmp_path / "tiny.gguf", gguf_metadata(theirs.config) | wide, gguf_tensors(theirs))
    assert_close(load(path)(ids), theirs(ids).logits, 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_matrix_is_what_the_gguf_package_makes_of_it(tmp_path: Path, kind: str):
    theirs = made(hidden_size=256, intermediate_size=256, num_hidden_layers=1, num_key_value_heads=2)
    tensors = gguf_tensors(theirs)
    ours = load(write_gguf(tmp_path / "tiny.gguf", gguf_metadata(theirs.config), tensors, kind))

    def expected(name: str) -> torch.Tensor:
        if kind == "F32":
            return torch.from_numpy(tensors[name])
        return torch.from_numpy(gguf.dequantize(quantised(tensors[name], kind), gguf.GGMLQuantizationType[kind]))

    block = ours.decoder[0]
    gate, up = block.feed_forward.gate_up.weight.chunk(2)
    query, key, value = block.attention.query_key_value.weight.split([256, 128, 128])
    for weight, name in (
        (ours.embedding.tokens.weight, "token_embd"),
        (ours.head.weight, "output"),
        (gate, "blk.0.ffn_gate"),
        (up, "blk.0.ffn_up"),
        (block.feed_forward.down.weight, "blk.0.ffn_down"),
        (value, "blk.0.attn_v"),
        (block.attention.output.weight, "blk.0.attn_output"),
    ):
        assert torch.equal(weight, expected(f"{name}.weight")), name
    for weight, name, n_heads in ((query, "attn_q", 4), (key, "attn_k", 2)):
        halves = weight.view(n_heads, 2, 32, 256)  # row i of a head is turned with row i + 32
        pairs = expected(f"blk.0.{name}.weight").view(n_heads, 32, 2, 256)
        assert torch.equal(halves.transpose(1, 2), pairs), name


def test_linear_scaling(tmp_path: Path):
    theirs, ids = (
        made(rope_parameters={"rope_type": "linear", "rope_theta": 50.0, "factor": 3.0}),
        torch.randint(3, 53, (2, 12)),
    )
    scaling = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 3.0}
    path = write_gguf(tmp_path / "tiny.gguf", gguf_metadata(theirs.config) | scaling, gguf_tensors(theirs))
    assert_close(load(path)(ids), theirs(ids).logits, 1e-5)


def factors(theirs: LlamaForCausalLM) -> np.ndarray:
    """What llama.cpp's converter stores in `rope_freqs.weight`: by how much each pair is slowed down."""
    c = theirs.config
    plain = c.rope_parameters["rope_theta"] ** -(torch.arange(0, c.head_dim, 2).double() / c.head_dim)
    return (plain / theirs.model.rotary_emb.inv_freq.double()).float().numpy()


def test_llama3_scaling_is_found_again_from_its_factors(tmp_path: Path):
    stated = LLAMA3 | {"original_max_position_embeddings": 8192}
    theirs, ids = made(rope_parameters=stated, head_dim=32), torch.randint(3, 53, (2, 12))
    wide = {"llama.attention.key_length": 32, "llama.attention.value_length": 32}
    tensors = gguf_tensors(theirs) | {"rope_freqs.weight": factors(theirs)}
    path = write_gguf(tmp_path / "tiny.gguf", gguf_metadata(theirs.config) | wide, tensors)
    ours = load(path)
    assert ours.config.rotary_scaling == "llama3"
    assert ours.config.rotary_scaling_numbers == pytest.approx((8.0, 1.0, 4.0, 8192.0), rel=1e-6)
    assert_close(ours(ids), theirs(ids).logits, 1e-5)
    tensors["rope_freqs.weight"][5] *= 1.01
    with pytest.raises(CheckpointError, match=r"'rope_freqs.weight' is not the table that this model computes"):
        load(write_gguf(path, gguf_metadata(theirs.config) | wide, tensors))


def test_a_text_ends_with_its_own_end_or_with_that_of_a_turn_or_of_a_message(tmp_path: Path):
    theirs = made()
    tensors, plain = gguf_tensors(theirs), gguf_metadata(theirs.config)
    for ids, wanted in (
        ({"eos": 2, "eot": 7, "eom": 9}, (2, 7, 9)),
        ({"eos": 2, "eot": 2, "eom": 9}, (2, 9)),
        ({"eos": 0, "eom": 0}, (0,)),
        ({"eot": 7}, (7,)),
        ({"eom": 9}, (9,)),
        ({}, None),
    ):
        metadata = {key: value for key, value in plain.items() if key != "tokenizer.ggml.eos_token_id"}
        metadata |= {f"tokenizer.ggml.{role}_token_id": id for role, id in ids.items()}
        config = load(write_gguf(tmp_path / "tiny.gguf", metadata, tensors)).config
        assert (config.end_ids, config.start_id, config.pad_id) == (wanted, 1, None)
    metadata = plain | {"tokenizer.ggml.padding_token_id": 0, "tokenizer.ggml.bos_token_id": 5}
    config = load(write_gguf(tmp_path / "tiny.gguf", metadata, tensors)).config
    assert (config.end_ids, config.start_id, config.pad_id) == ((2,), 5, 0)


@pytest.mark.parametrize("window", [2, 5, None])
def test_a_window_is_read(tmp_path: Path, window: int | None):
    theirs = MistralForCausalLM(mistral(window)).eval()
    draw(theirs)
    ids = torch.randint(3, 53, (2, 12))
    metadata = gguf_metadata(theirs.config) | {"llama.rope.dimension_count": 6}
    metadata |= {"llama.attention.sliding_window": window or 0}
    ours = load(write_gguf(tmp_path / "tiny.gguf", metadata, gguf_tensors(theirs)))
    assert ours.config.window == window
    assert_close(ours(ids), theirs(ids).logits, 1e-5)


def test_what_a_file_leaves_unsaid_is_what_llama_cpp_takes_for_it(tmp_path: Path):
    theirs, ids = made(num_key_value_heads=4), torch.randint(3, 53, (2, 12))
    unsaid = ("llama.attention.head_count_kv", "llama.rope.freq_base", "llama.rope.dimension_count", "llama.vocab_size")
    assert theirs.config.rope_parameters["rope_theta"] == 10000
    metadata = {key: value for key, value in gguf_metadata(theirs.config).items() if key not in unsaid}
    assert_close(
        load(write_gguf(tmp_path / "tiny.gguf", metadata, gguf_tensors(theirs)))(ids), theirs(ids).logits, 1e-5
    )


@pytest.mark.parametrize(
    ("said", "factor"),
    [
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 3.0}, 3.0),
        ({"llama.rope.scaling.factor": 3.0}, 3.0),
        ({"llama.rope.scale_linear": 3.0}, 3.0),
        ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 3.0}, None),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 1.0}, None),
    ],
)
def test_positions_are_stretched_where_the_file_says_so(tmp_path: Path, said: dict[str, Any], factor: float | None):
    theirs = made()
    config = load(write_gguf(tmp_path / "tiny.gguf", gguf_metadata(theirs.config) | said, gguf_tensors(theirs))).config
    assert config.rotary_scaling == (None if factor is None else "linear")
    assert config.rotary_scaling_numbers == (None if factor is None else (factor,))


@pytest.mark.parametrize(
    "said",
    [
        {"llama.expert_count": 8},
        {"llama.rope.scaling.type": "yarn"},
        {"llama.attention.value_length": 10},
        {"llama.rope.dimension_count": 2},
        {"llama.attention.key_length": 10},
        {"llama.new_trick": 1},
    ],
)
def test_what_another_computation_would_need_is_refused_by_name(tmp_path: Path, said: dict[str, Any]):
    theirs = made()
    metadata = gguf_metadata(theirs.config) | {"llama.attention.key_length": 6, "llama.attention.value_length": 6}
    path = write_gguf(tmp_path / "tiny.gguf", metadata | said, gguf_tensors(theirs))
    with pytest.raises(CheckpointError):
        load(path)
