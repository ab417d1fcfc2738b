"""stories15M from its llama2.c file, token for token what `transformers` writes.

The peer's weights are read here, by the order of llama2.c's `memory_map_weights`, without Cutaway.
"""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.real_peers import N, assembled, our_tokens, their_tokens
from helpers.real_weights import real_weights
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from cutaway.checkpoints import import_model, load, load_tokenizer
from cutaway.decoding import greedy
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer

PROMPTS = ["", "Once upon a time", "Tim and his dog", "The little red hen was", '"I am not afraid," said']


@pytest.fixture(scope="module")
def path() -> Path:
    return real_weights("stories15m") / "stories15M.bin"


@pytest.fixture(scope="module")
def ours(path: Path) -> Model:
    return load(path)


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> Tokenizer:
    return load_tokenizer(path)


@pytest.fixture(scope="module")
def theirs(path: Path) -> LlamaForCausalLM:
    dim, hidden, n_layers, n_heads, n_kv_heads, vocab, length = struct.unpack("<7i", path.read_bytes()[:28])
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=dim,
        intermediate_size=hidden,
        num_hidden_layers=n_layers,
        num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads,
        max_position_embeddings=length,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    numbers, at = torch.from_numpy(np.fromfile(path, "<f4", offset=28)), 0

    def take(*shape: int) -> Tensor:
        nonlocal at
        at += (size := torch.Size(shape).numel())
        return numbers[at - size : at].view(shape)

    def halves(rows: Tensor) -> Tensor:
        """Meta turns rows 2i and 2i + 1 together; transformers rows i and i + d_head / 2."""
        return rows.view(n_layers, n_heads, -1, 2, dim).transpose(2, 3).reshape(n_layers, dim, dim)

    layers = {}
    weights = {"model.embed_tokens.weight": take(vocab, dim)}
    layers["input_layernorm"] = take(n_layers, dim)
    for name in "qkvo":
        rows = take(n_layers, dim, dim)
        layers[f"self_attn.{name}_proj"] = halves(rows) if name in "qk" else rows
    layers["post_attention_layernorm"] = take(n_layers, dim)
    layers["mlp.gate_proj"] = take(n_layers, hidden, dim)
    layers["mlp.down_proj"] = take(n_layers, dim, hidden)
    layers["mlp.up_proj"] = take(n_layers, hidden, dim)
    weights["model.norm.weight"] = take(dim)
    for name, stack in layers.items():
        weights |= {f"model.layers.{layer}.{name}.weight": stack[layer] for layer in range(n_layers)}
    return assembled(config, weights)


def test_it_is_the_size_of_that_name(ours: Model):
    assert ours.n_parameters() == 15_191_712


def test_fifty_tokens_of_five_prompts(ours: Model, theirs: LlamaForCausalLM, tokenizer: Tokenizer):
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    expected = their_tokens(theirs, prompts)
    assert expected.shape == (5, N)
    for side in ("left", "right"):
        assert torch.equal(our_tokens(ours, prompts, side), expected)


def test_it_tells_a_story(ours: Model, tokenizer: Tokenizer):
    story = tokenizer.decode(greedy(ours, torch.tensor([[tokenizer.bos_id]]), n=40)[0].tolist())
    assert story.startswith("Once upon a time, there was a little girl named Lily. She loved to play outside")


def test_imported_it_tells_the_same_story(path: Path, ours: Model, tokenizer: Tokenizer, tmp_path: Path):
    import_model(path, tmp_path)
    again, ids = load(tmp_path), torch.tensor([load_tokenizer(tmp_path).encode("One day")])
    assert ids.tolist() == [tokenizer.encode("One day")]
    assert torch.equal(greedy(again, ids, n=20), greedy(ours, ids, n=20))
