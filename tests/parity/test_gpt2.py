"""GPT-2 against `transformers`: every architecture, in and out."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from helpers.parity.padded_batches import SIDES, Side, padded
from helpers.parity.twins import (
    Twins,
    assert_close,
    assert_goes_out_again,
    assert_kept_by_our_own_folder,
    assert_same_gradients,
    twins_of,
)
from helpers.parity.whole_answers import our_answers, their_answers
from safetensors.torch import load_file, save_file
from transformers import GPT2Config

from cutaway.checkpoints import load

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
GRADIENTS = {torch.float32: 1e-5, torch.float64: 1e-9}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2LMHeadModel": ("language_model", {}),
    "GPT2LMHeadModel untied": ("language_model", {"tie_word_embeddings": False}),
    "GPT2LMHeadModel relu": ("language_model", {"activation_function": "relu", "n_inner": None}),
    "GPT2ForSequenceClassification": ("classify", {"num_labels": 3}),
    "GPT2ForSequenceClassification one": ("regress", {"num_labels": 1}),
    "GPT2Model": ("hidden", {}),
}


def twins(folder: Path, case: str, dtype: torch.dtype = torch.float32) -> Twins:
    numbers: dict[str, Any] = {"vocab_size": 53, "n_positions": 12, "n_embd": 24, "n_layer": 2, "n_head": 3}
    numbers |= {"n_inner": 40, "layer_norm_epsilon": 0.01, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return twins_of(getattr(transformers, case.split()[0])(GPT2Config(**numbers | TASKS[case][1])), folder, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", TASKS)
def test_answers_and_gradients(tmp_path: Path, case: str, dtype: torch.dtype):
    both, text = twins(tmp_path / "theirs", case, dtype), padded([9, 5, 2], "right", 53)
    assert both.ours.config.task == TASKS[case][0]
    ours, theirs = our_answers(both.ours, text), their_answers(both.theirs, text)
    assert_close(ours, theirs, TOLERANCE[dtype])
    assert_same_gradients(both, ours, theirs, GRADIENTS[dtype], tmp_path / "gradients")


@pytest.mark.parametrize("case", TASKS)
def test_goes_out_and_is_kept(tmp_path: Path, case: str):
    both, text = twins(tmp_path / "theirs", case), padded([9, 5, 2], "right", 53)
    assert_goes_out_again(both, lambda it: their_answers(it, text), tmp_path / "out")
    assert_kept_by_our_own_folder(both, lambda it: our_answers(it, text), tmp_path / "native")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("case", ["GPT2LMHeadModel", "GPT2ForSequenceClassification"])
def test_padding_on_either_side(tmp_path: Path, case: str, side: Side):
    both, text = twins(tmp_path, case, torch.float64), padded([9, 5, 2], side, 53)
    assert_close(our_answers(both.ours, text), their_answers(both.theirs, text, position_ids=text.positions), 1e-10)


def test_the_oldest_files(tmp_path: Path):
    """The published GPT-2: a body's names, stored causal masks, and the embedding once more as output."""
    both, file = twins(tmp_path, "GPT2LMHeadModel"), tmp_path / "model.safetensors"
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in load_file(file).items()}
    for layer in range(2):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 12, 12).tril()
    tensors["lm_head.weight"] = tensors["wte.weight"].clone()
    save_file(tensors, file)
    text = padded([9, 5, 2], "right", 53)
    assert_close(our_answers(load(tmp_path), text), their_answers(both.theirs, text), 1e-5)
