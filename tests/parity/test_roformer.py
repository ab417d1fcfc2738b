"""RoFormer against `transformers`: every architecture, in and out."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from helpers.parity.padded_batches import SIDES, Batch, Side, padded
from helpers.parity.twins import (
    Twins,
    assert_close,
    assert_goes_out_again,
    assert_kept_by_our_own_folder,
    assert_same_gradients,
    twins_of,
)
from helpers.parity.whole_answers import our_answers, their_answers
from torch import Tensor
from transformers import RoFormerConfig

from cutaway.model.positions import SinusoidalHalves

GRADIENTS = {torch.float32: 1e-5, torch.float64: 1e-9}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "RoFormerForMaskedLM": ("masked_language_model", {}),
    "RoFormerForMaskedLM untied": ("masked_language_model", {"tie_word_embeddings": False}),
    "RoFormerForSequenceClassification": ("classify", {"num_labels": 3}),
    "RoFormerForSequenceClassification relu": ("classify", {"hidden_act": "relu"}),
    "RoFormerForSequenceClassification one": ("regress", {"num_labels": 1}),
    "RoFormerForTokenClassification": ("tag", {"num_labels": 5}),
    "RoFormerModel": ("hidden", {}),
}


def tiny(**changes: Any) -> RoFormerConfig:
    numbers: dict[str, Any] = {
        "vocab_size": 53,
        "max_position_embeddings": 12,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "type_vocab_size": 3,
        "layer_norm_eps": 0.01,
    }
    return RoFormerConfig(**numbers | changes)


def twins(folder: Path, case: str, dtype: torch.dtype = torch.float32) -> Twins:
    return twins_of(getattr(transformers, case.split()[0])(tiny(**TASKS[case][1])), folder, dtype)


def without_casts(theirs: transformers.PreTrainedModel) -> None:
    """Its angles' sines and cosines are rounded to fp32, whatever the weights are: here they are as exact as ours."""
    table = theirs.base_model.encoder.embed_positions.weight
    exact = SinusoidalHalves(*table.shape).rows()
    assert_close(table.double(), exact, 1e-7)
    table.data = exact


def batch(side: Side = "right") -> tuple[Batch, Tensor]:
    """Rows of three lengths, and their segments."""
    found = padded([9, 5, 2], side, 53)
    return found, torch.randint(0, 3, found.ids.shape, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("dtype", GRADIENTS, ids=str)
@pytest.mark.parametrize("case", TASKS)
def test_answers_and_gradients(tmp_path: Path, case: str, dtype: torch.dtype):
    both, (text, segments) = twins(tmp_path / "theirs", case, dtype), batch()
    assert both.ours.config.task == TASKS[case][0]
    ours = our_answers(both.ours, text, segments=segments)
    theirs = their_answers(both.theirs, text, token_type_ids=segments)
    assert_close(ours, theirs, 1e-5 if dtype == torch.float32 else 1e-6)
    if dtype == torch.float64:
        without_casts(both.theirs)
        theirs = their_answers(both.theirs, text, token_type_ids=segments)
        assert_close(ours, theirs, 1e-10)
    assert_same_gradients(both, ours, theirs, GRADIENTS[dtype], tmp_path / "gradients")


@pytest.mark.parametrize("case", TASKS)
def test_goes_out_and_is_kept(tmp_path: Path, case: str):
    both, (text, segments) = twins(tmp_path / "theirs", case), batch()
    unused = ("embed_positions.weight", *(["cls.predictions.bias"] if case.endswith("untied") else []))
    assert_goes_out_again(
        both, lambda it: their_answers(it, text, token_type_ids=segments), tmp_path / "out", tuple(unused)
    )
    assert_kept_by_our_own_folder(both, lambda it: our_answers(it, text, segments=segments), tmp_path / "native")


@pytest.mark.parametrize("side", SIDES)
def test_padding_on_either_side(tmp_path: Path, side: Side):
    """They count padding too, and only differences of positions are seen."""
    both, (text, segments) = twins(tmp_path, "RoFormerForMaskedLM", torch.float64), batch(side)
    without_casts(both.theirs)
    ours = our_answers(both.ours, text, segments=segments)
    theirs = their_answers(both.theirs, text, token_type_ids=segments)
    assert_close(ours, theirs, 1e-10)


def test_half_precision_tables_are_recognised(tmp_path: Path):
    both, (text, segments) = twins(tmp_path, "RoFormerForMaskedLM", torch.bfloat16), batch()
    theirs = both.theirs.float()
    without_casts_in_half = SinusoidalHalves(12, 8).rows().float()
    theirs.base_model.encoder.embed_positions.weight.data = without_casts_in_half
    ours = our_answers(both.ours.float(), text, segments=segments)
    assert_close(ours, their_answers(theirs, text, token_type_ids=segments), 1e-5)
