"""Mistral against `transformers`: Llama with a window."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.parity.padded_batches import SIDES, Side, padded
from helpers.parity.tiny_mistral import tiny
from helpers.parity.twins import (
    Twins,
    assert_close,
    assert_goes_out_again,
    assert_kept_by_our_own_folder,
    assert_same_gradients,
    twins_of,
)
from helpers.parity.without_casts import without_casts
from transformers import MistralForCausalLM, MistralForSequenceClassification, MistralModel

from cutaway.checkpoints import export, load
from cutaway.errors import CheckpointError
from cutaway.families import build
from cutaway.families.llama import LlamaConfig

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-6}  # it casts to fp32 inside its norms and angles


def twins(folder: Path, dtype: torch.dtype = torch.float32, window: int | None = 5, **changes: Any) -> Twins:
    return twins_of(MistralForCausalLM(tiny(window, **changes)), folder, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("window", [2, 5, 11, None])
def test_logits_and_gradients(tmp_path: Path, window: int | None, dtype: torch.dtype):
    both, ids = twins(tmp_path / "theirs", dtype, window), torch.randint(3, 53, (2, 12))
    ours, theirs = both.ours(ids), both.theirs(ids).logits
    assert_close(ours, theirs, TOLERANCE[dtype])
    assert_same_gradients(both, ours, theirs, 1e-5, tmp_path / "gradients")


@pytest.mark.parametrize("window", [1, 5, 11, None])
def test_without_its_casts_it_is_the_same_to_the_last_digits(tmp_path: Path, window: int | None):
    both, ids = twins(tmp_path, torch.float64, window), torch.randint(3, 53, (2, 20))
    without_casts(both)
    assert_close(both.ours(ids), both.theirs(ids).logits, 1e-12)


@pytest.mark.parametrize("side", SIDES)
def test_padded_batches(tmp_path: Path, side: Side):
    both, batch = twins(tmp_path), padded([9, 17, 4], side, 53)
    theirs = both.theirs(batch.ids, attention_mask=batch.mask, position_ids=batch.positions).logits
    ours = both.ours(batch.ids, real=batch.real)
    assert_close(ours[batch.real], theirs[batch.real], 1e-5)


@pytest.mark.parametrize("changes", [{}, {"head_dim": 10}, {"tie_word_embeddings": True}])
def test_out_and_in_again(tmp_path: Path, changes: dict[str, Any]):
    both, ids = twins(tmp_path / "theirs", **changes), torch.randint(3, 53, (2, 12))
    assert_goes_out_again(both, lambda theirs: theirs(ids).logits, tmp_path / "out")
    assert_kept_by_our_own_folder(both, lambda ours: ours(ids), tmp_path / "own")
    assert load(tmp_path / "out").config == both.ours.config


def test_the_window_decides_the_layout(tmp_path: Path):
    config = LlamaConfig(vocab_size=9, max_len=8, n_layers=1, d_model=8, n_heads=2, n_kv_heads=1, d_ff=8)
    for window, name in ((None, "llama"), (3, "mistral")):
        export(build(config, window=window), tmp_path / name)
        values = json.loads((tmp_path / name / "config.json").read_text())
        assert (values["model_type"], values["architectures"]) == (name, [f"{name.capitalize()}ForCausalLM"])
    with pytest.raises(CheckpointError, match="window and attention_bias"):
        export(build(config, window=3, attention_bias=True), tmp_path / "neither")


def test_the_other_heads(tmp_path: Path):
    ids = torch.randint(3, 53, (2, 12))
    classes = twins_of(MistralForSequenceClassification(tiny(num_labels=3)), tmp_path / "classes")
    assert_close(classes.ours(ids), classes.theirs(ids).logits, 1e-5)
    assert_goes_out_again(classes, lambda theirs: theirs(ids).logits, tmp_path / "classes out")
    body = twins_of(MistralModel(tiny()), tmp_path / "body")
    assert_close(body.ours(ids), body.theirs(ids).last_hidden_state, 1e-5)
    assert_goes_out_again(body, lambda theirs: theirs(ids).last_hidden_state, tmp_path / "body out")
