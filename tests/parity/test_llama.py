"""Llama against `transformers`: every variant of the layout, in and out."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.parity.padded_batches import SIDES, Side, padded
from helpers.parity.tiny_llama import tiny
from helpers.parity.twins import (
    Twins,
    assert_close,
    assert_goes_out_again,
    assert_kept_by_our_own_folder,
    assert_same_bits,
    assert_same_gradients,
    twins_of,
)
from helpers.parity.without_casts import without_casts
from transformers import LlamaForCausalLM, LlamaForSequenceClassification, LlamaModel

from cutaway.checkpoints import load
from cutaway.errors import ConfigError

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-6}  # it casts to fp32 inside its norms and angles
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 10}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped": {"num_key_value_heads": 2},
    "one key": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "biased": {"attention_bias": True, "num_key_value_heads": 2},
    "wide heads": {"head_dim": 10, "num_key_value_heads": 2},
    "gelu": {"hidden_act": "gelu_new", "attention_dropout": 0.25},
    "other base": {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
    "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 50.0, "factor": 3.0}},
    "llama3": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 30.0, **LLAMA3}, "head_dim": 12},
}


def twins(folder: Path, dtype: torch.dtype = torch.float32, **changes: Any) -> Twins:
    return twins_of(LlamaForCausalLM(tiny(**changes)), folder, dtype)


def ids(n: int = 12) -> torch.Tensor:
    return torch.randint(3, 53, (2, n))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_gradients(tmp_path: Path, variant: str, dtype: torch.dtype):
    both, text = twins(tmp_path / "theirs", dtype, **VARIANTS[variant]), ids()
    ours, theirs = both.ours(text), both.theirs(text).logits
    assert_close(ours, theirs, TOLERANCE[dtype])
    assert_same_gradients(both, ours, theirs, 1e-5, tmp_path / "gradients")


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_its_casts_it_is_the_same_to_the_last_digits(tmp_path: Path, variant: str):
    both, text = twins(tmp_path / "theirs", torch.float64, **VARIANTS[variant]), ids(20)
    without_casts(both)
    ours, theirs = both.ours(text), both.theirs(text).logits
    assert_close(ours, theirs, 1e-12)
    assert_same_gradients(both, ours, theirs, 1e-11, tmp_path / "gradients")


@pytest.mark.parametrize("variant", VARIANTS)
def test_out_and_in_again(tmp_path: Path, variant: str):
    both, text = twins(tmp_path / "theirs", **VARIANTS[variant]), ids()
    assert_goes_out_again(both, lambda theirs: theirs(text).logits, tmp_path / "out")
    assert_kept_by_our_own_folder(both, lambda ours: ours(text), tmp_path / "own")
    again = load(tmp_path / "out")
    assert again.config == both.ours.config


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_padded_batches(tmp_path: Path, side: Side, dtype: torch.dtype):
    both = twins(tmp_path, dtype, num_key_value_heads=2)
    batch = padded([9, 17, 4], side, 53)
    theirs = both.theirs(batch.ids, attention_mask=batch.mask, position_ids=batch.positions).logits
    ours = both.ours(batch.ids, real=batch.real)
    assert_close(ours[batch.real], theirs[batch.real], TOLERANCE[dtype])


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("side", SIDES)
def test_classes_are_read_off_the_last_real_token(tmp_path: Path, side: Side, labels: int):
    both = twins_of(LlamaForSequenceClassification(tiny(num_labels=labels)), tmp_path / "theirs", torch.float64)
    batch = padded([9, 17, 4], side, 53)

    def run(theirs: LlamaForSequenceClassification) -> torch.Tensor:
        return theirs(batch.ids, attention_mask=batch.mask, position_ids=batch.positions).logits

    assert both.ours.config.task == ("regress" if labels == 1 else "classify")
    assert_goes_out_again(both, run, tmp_path / "out")
    without_casts(both)
    ours, theirs = both.ours(batch.ids, real=batch.real), run(both.theirs)
    assert_close(ours, theirs, 1e-12)
    assert_same_gradients(both, ours, theirs, 1e-11, tmp_path / "gradients")


def test_hidden_states(tmp_path: Path):
    both, text = twins_of(LlamaModel(tiny()), tmp_path / "theirs"), ids()
    assert_close(both.ours(text), both.theirs(text).last_hidden_state, 1e-5)
    assert_goes_out_again(both, lambda theirs: theirs(text).last_hidden_state, tmp_path / "out")


def rewrite(folder: Path, **changes: Any) -> Path:
    """The folder with some keys of its config changed; None takes one out."""
    values = json.loads((folder / "config.json").read_text()) | changes
    kept = {name: value for name, value in values.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))
    return folder


@pytest.mark.parametrize("word", ["type", "rope_type"])
@pytest.mark.parametrize("variant", ["other base", "linear", "llama3"])
def test_folders_of_transformers_4_are_read_too(tmp_path: Path, variant: str, word: str):
    both = twins(tmp_path, **VARIANTS[variant])
    stated = dict(VARIANTS[variant]["rope_parameters"])
    base, kind = stated.pop("rope_theta"), stated.pop("rope_type")
    old = None if kind == "default" else {word: kind, **stated}
    again = load(rewrite(tmp_path, rope_parameters=None, rope_theta=base, rope_scaling=old))
    assert again.config == both.ours.config


@pytest.mark.parametrize("variant", ["other base", "linear", "llama3"])
def test_what_we_write_is_what_transformers_4_reads(tmp_path: Path, variant: str):
    both, text = twins(tmp_path / "theirs", **VARIANTS[variant]), ids()
    assert_goes_out_again(both, lambda theirs: theirs(text).logits, tmp_path / "out")
    stated = dict(VARIANTS[variant]["rope_parameters"])
    values = json.loads((tmp_path / "out" / "config.json").read_text())
    assert values["rope_theta"] == stated.pop("rope_theta")
    assert values["rope_scaling"] == (None if stated["rope_type"] == "default" else stated)
    # what it did not know, it did not read: the same numbers come from the old keys alone
    old = LlamaForCausalLM.from_pretrained(rewrite(tmp_path / "out", rope_parameters=None)).eval()
    assert_same_bits(old, both.theirs, lambda theirs: theirs(text).logits)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}}, "rope_type='yarn'"),
        ({"rope_parameters": None, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type='dynamic'"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0}}, "low_freq_factor"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": -1.0}}, "takes factor, each above 0"),
        ({"rope_parameters": {"rope_theta": 0}}, "rotary_base=0"),
        ({"rope_parameters": {"rope_theta": 1e4, "mscale": 2.0}}, "mscale"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_parameters": ["linear"]}, "rope_parameters"),
        ({"mlp_bias": True}, "mlp_bias=True"),
        ({"sliding_window": 4}, "sliding_window"),
        ({"num_hidden_layers": 10**9}, "n_layers=1000000000"),
        ({"num_attention_heads": 0}, "n_heads=0"),
        ({"hidden_size": "24"}, "hidden_size='24'"),
    ],
)
def test_what_we_cannot_compute_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], named: str):
    twins(tmp_path)
    with pytest.raises(ConfigError, match=named):
        load(rewrite(tmp_path, **changes))
