"""RoBERTa against `transformers`: every architecture, in and out."""

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
from safetensors.torch import load_file, save_file
from transformers import RobertaConfig

from cutaway.checkpoints import export, load
from cutaway.errors import CheckpointError
from cutaway.families import build

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
GRADIENTS = {torch.float32: 1e-5, torch.float64: 1e-9}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "RobertaForMaskedLM": ("masked_language_model", {}),
    "RobertaForMaskedLM untied": ("masked_language_model", {"tie_word_embeddings": False}),
    "RobertaForMaskedLM relu": ("masked_language_model", {"hidden_act": "relu"}),  # its head keeps the GELU
    "RobertaForMaskedLM other padding": ("masked_language_model", {"pad_token_id": 2, "type_vocab_size": 1}),
    "RobertaForSequenceClassification": ("classify", {"num_labels": 3}),
    "RobertaForSequenceClassification one": ("regress", {"num_labels": 1}),
    "RobertaForTokenClassification": ("tag", {"num_labels": 5}),
    "RobertaModel": ("hidden", {}),
    "RobertaModel without pooler": ("hidden", {}),
}


def tiny(**changes: Any) -> RobertaConfig:
    numbers: dict[str, Any] = {
        "vocab_size": 53,
        "max_position_embeddings": 14,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "layer_norm_eps": 0.01,
    }
    return RobertaConfig(**numbers | changes)


def twins(folder: Path, case: str, dtype: torch.dtype = torch.float32) -> Twins:
    return twins_of(getattr(transformers, case.split()[0])(tiny(**TASKS[case][1]), **options(case)), folder, dtype)


def options(case: str) -> dict[str, Any]:
    return {"add_pooling_layer": False} if case.endswith("without pooler") else {}


def batch(both: Twins, side: Side = "right") -> Batch:
    """Their positions are counted over what is not the padding token, so that has to stand there."""
    found = padded([9, 5, 2], side, 53)
    return Batch(found.ids.masked_fill(~found.real, both.theirs.config.pad_token_id), found.real, found.positions)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", TASKS)
def test_answers_and_gradients(tmp_path: Path, case: str, dtype: torch.dtype):
    both = twins(tmp_path / "theirs", case, dtype)
    assert both.ours.config.task == TASKS[case][0]
    text = batch(both)
    ours, theirs = our_answers(both.ours, text), their_answers(both.theirs, text)
    assert_close(ours, theirs, TOLERANCE[dtype])
    assert_same_gradients(both, ours, theirs, GRADIENTS[dtype], tmp_path / "gradients")


@pytest.mark.parametrize("case", TASKS)
def test_goes_out_and_is_kept(tmp_path: Path, case: str):
    both = twins(tmp_path / "theirs", case)
    text, unused = batch(both), ("lm_head.bias",) if case.endswith("untied") else ()
    assert_goes_out_again(both, lambda it: their_answers(it, text), tmp_path / "out", unused, **options(case))
    assert_kept_by_our_own_folder(both, lambda it: our_answers(it, text), tmp_path / "native")


@pytest.mark.parametrize("side", SIDES)
def test_segments_and_padding_on_either_side(tmp_path: Path, side: Side):
    both = twins(tmp_path, "RobertaForMaskedLM", torch.float64)
    text = batch(both, side)
    segments = torch.randint(0, 2, text.ids.shape)
    ours, theirs = (
        our_answers(both.ours, text, segments=segments),
        their_answers(both.theirs, text, token_type_ids=segments),
    )
    assert_close(ours, theirs, 1e-10)


def test_the_longest_text(tmp_path: Path):
    both, ids = twins(tmp_path, "RobertaForMaskedLM"), torch.randint(3, 53, (1, 12))
    assert both.ours.config.max_len == 12
    assert_close(both.ours(ids), both.theirs(ids).logits, 1e-5)


def test_a_pooler_that_nobody_trained_is_left_out(tmp_path: Path):
    """roberta-base stores one beside its masked language model."""
    both, file = twins(tmp_path, "RobertaForMaskedLM"), tmp_path / "model.safetensors"
    pooler = {f"roberta.pooler.dense.{kind}": torch.ones(24, 24)[0 if kind == "bias" else slice(None)].clone()
              for kind in ("weight", "bias")}  # fmt: skip
    save_file(load_file(file) | pooler, file)
    text = batch(both)
    assert_close(our_answers(load(tmp_path), text), their_answers(both.theirs, text), 1e-5)


def test_without_a_padding_token_there_is_nothing_to_count_from(tmp_path: Path):
    model = build("roberta-base", n_layers=1, d_model=8, n_heads=2, d_ff=8, vocab_size=11, max_len=8, pad_id=None)
    with pytest.raises(CheckpointError, match="pad_id"):
        export(model, tmp_path)
