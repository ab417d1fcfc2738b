"""GPT (`openai-gpt`) against `transformers`: every architecture, in and out."""

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
from transformers import OpenAIGPTConfig

from cutaway.checkpoints import export
from cutaway.errors import CheckpointError
from cutaway.families import build

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
GRADIENTS = {torch.float32: 1e-5, torch.float64: 1e-9}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "OpenAIGPTLMHeadModel": ("language_model", {}),
    "OpenAIGPTLMHeadModel untied": ("language_model", {"tie_word_embeddings": False}),
    "OpenAIGPTLMHeadModel silu": ("language_model", {"afn": "silu"}),
    "OpenAIGPTForSequenceClassification": ("classify", {"num_labels": 3}),
    "OpenAIGPTForSequenceClassification one": ("regress", {"num_labels": 1}),
    "OpenAIGPTModel": ("hidden", {}),
}


def twins(folder: Path, case: str, dtype: torch.dtype = torch.float32) -> Twins:
    numbers: dict[str, Any] = {"vocab_size": 53, "n_positions": 12, "n_embd": 24, "n_layer": 2, "n_head": 3}
    numbers |= {"layer_norm_epsilon": 0.01, "pad_token_id": 0}
    config = OpenAIGPTConfig(**numbers | TASKS[case][1])
    return twins_of(getattr(transformers, case.split()[0])(config), folder, dtype)


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
@pytest.mark.parametrize("case", ["OpenAIGPTLMHeadModel", "OpenAIGPTForSequenceClassification"])
def test_padding_on_either_side(tmp_path: Path, case: str, side: Side):
    both, text = twins(tmp_path, case, torch.float64), padded([9, 5, 2], side, 53)
    assert_close(our_answers(both.ours, text), their_answers(both.theirs, text, position_ids=text.positions), 1e-10)


@pytest.mark.parametrize("change", [{"d_ff": 40}, {"activation": "gelu"}], ids=str)
def test_what_the_layout_cannot_say_does_not_go_out(tmp_path: Path, change: dict[str, Any]):
    model = build(
        "gpt", **{"vocab_size": 11, "max_len": 8, "n_layers": 1, "d_model": 8, "n_heads": 2, "d_ff": 32} | change
    )
    with pytest.raises(CheckpointError, match=r"d_ff=.*activation="):
        export(model, tmp_path)
