"""T5 against `transformers`: v1.0 and v1.1, tied and untied, padded on both sides of the cross-attention."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.parity.padded_batches import SIDES, Batch, Side, padded
from helpers.parity.tiny_t5 import tiny
from helpers.parity.twins import (
    Twins,
    assert_close,
    assert_goes_out_again,
    assert_kept_by_our_own_folder,
    assert_same_gradients,
    draw,
    twins_of,
)
from helpers.parity.without_casts import without_casts
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel, T5ForConditionalGeneration, T5Model

from cutaway.checkpoints import load
from cutaway.checkpoints.hf import exported_layout
from cutaway.checkpoints.layout import give_weights
from cutaway.errors import CheckpointError, ConfigError
from cutaway.families import build

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-6}  # it casts to fp32 inside its norms
V11 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}  # read as «do not scale the output»
VARIANTS: dict[str, tuple[bool, dict[str, Any]]] = {  # tied, changes of the config
    "v1.0": (True, {}),
    "v1.1": (False, V11),
    "v1.1 tied": (True, V11),
    "v1.0 untied": (False, {}),
    "wide heads": (True, {"d_kv": 6}),
    "gated silu": (False, V11 | {"feed_forward_proj": "gated-silu"}),
    "gelu": (True, {"feed_forward_proj": "gelu"}),
}


def untie(theirs: T5ForConditionalGeneration) -> None:
    """from_pretrained unties what differs in the file; made from a config alone, every T5 is tied."""
    theirs.lm_head.weight = nn.Parameter(torch.empty_like(theirs.shared.weight))
    theirs.all_tied_weights_keys.pop("lm_head.weight")


def twins(folder: Path, variant: str = "v1.0", dtype: torch.dtype = torch.float32) -> Twins:
    tied, changes = VARIANTS[variant]
    theirs = T5ForConditionalGeneration(tiny(**changes))
    if not tied:
        untie(theirs)
    both = twins_of(theirs, folder, dtype)
    assert (both.ours.config.tied, both.ours.config.scale_output) == (tied, "tie_word_embeddings" not in changes)
    return both


def run(theirs: PreTrainedModel, source: Batch, target: Batch) -> Tensor:
    return theirs(
        input_ids=source.ids,
        attention_mask=source.mask,
        decoder_input_ids=target.ids,
        decoder_attention_mask=target.mask,
    )[0]


def batches(side: Side = "right") -> tuple[Batch, Batch]:
    """Sources beyond the largest distance, so that its bucket is shared, and targets."""
    return padded([19, 7, 12], side, 53), padded([5, 14, 9], "right", 53, seed=1)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_gradients(tmp_path: Path, variant: str, dtype: torch.dtype):
    both, (source, target) = twins(tmp_path / "theirs", variant, dtype), batches()
    ours = both.ours(source.ids, target.ids, source_real=source.real, real=target.real)[target.real]
    theirs = run(both.theirs, source, target)[target.real]
    assert_close(ours, theirs, TOLERANCE[dtype])
    assert_same_gradients(both, ours, theirs, 1e-5, tmp_path / "gradients")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_without_its_casts_it_is_the_same_to_the_last_digits(tmp_path: Path, variant: str, side: Side):
    both, (source, target) = twins(tmp_path / "theirs", variant, torch.float64), batches(side)
    without_casts(both)
    ours = both.ours(source.ids, target.ids, source_real=source.real, real=target.real)[target.real]
    theirs = run(both.theirs, source, target)[target.real]
    assert_close(ours, theirs, 1e-12)
    assert_same_gradients(both, ours, theirs, 1e-11, tmp_path / "gradients")


@pytest.mark.parametrize("variant", VARIANTS)
def test_out_and_in_again(tmp_path: Path, variant: str):
    both, (source, target) = twins(tmp_path / "theirs", variant), batches()
    assert_goes_out_again(both, lambda theirs: run(theirs, source, target), tmp_path / "out")
    assert_kept_by_our_own_folder(both, lambda ours: ours(source.ids, target.ids), tmp_path / "own")
    assert load(tmp_path / "out").config == both.ours.config


def test_hidden_states(tmp_path: Path):
    both, (source, target) = twins_of(T5Model(tiny()), tmp_path / "theirs"), batches()
    ours = both.ours(source.ids, target.ids, source_real=source.real, real=target.real)
    assert_close(ours[target.real], run(both.theirs, source, target)[target.real], 1e-5)
    assert_goes_out_again(both, lambda theirs: run(theirs, source, target), tmp_path / "out")


@pytest.mark.parametrize("variant", ["v1.0", "v1.1"])
def test_first_weights_are_as_wide_as_theirs(variant: str):
    """Every matrix has its own width: in T5's, queries are drawn narrower, in place of scores that are divided."""
    torch.manual_seed(0)
    tied, changes = VARIANTS[variant]
    wide = {"d_model": 48, "d_kv": 16, "d_ff": 160, "num_heads": 6, "vocab_size": 200}
    theirs = T5ForConditionalGeneration(tiny(**wide, relative_attention_num_buckets=64, **changes)).state_dict()
    numbers = {"d_model": 48, "d_head": 16, "d_ff": 160, "n_heads": 6, "vocab_size": 200, "n_buckets": 64}
    layers = {"n_encoder_layers": 1, "n_decoder_layers": 2, "tied": tied, "scale_output": tied, "gated": not tied}
    ours = build("t5-small", seed=0, **numbers, **layers)
    stored = give_weights(ours, exported_layout(ours.config))
    assert set(stored) == {
        name for name in theirs if "embed_tokens" not in name and (name != "lm_head.weight" or not tied)
    }
    for name, tensor in stored.items():
        width, wanted = (float(one.detach().double().square().mean().sqrt()) for one in (tensor, theirs[name]))
        assert width == pytest.approx(wanted, rel=0.2), name


def rewrite(folder: Path, **changes: Any) -> Path:
    values = json.loads((folder / "config.json").read_text()) | changes
    kept = {name: value for name, value in values.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))
    return folder


def test_folders_of_transformers_4_are_read_too(tmp_path: Path):
    """There, v1.1 is told by `tie_word_embeddings` alone."""
    both = twins(tmp_path, "v1.1")
    old = {"scale_decoder_outputs": None, "dense_act_fn": None, "is_gated_act": None, "tie_word_embeddings": False}
    assert load(rewrite(tmp_path, **old)).config == both.ours.config


def test_tied_copies_in_the_file_must_agree(tmp_path: Path):
    theirs = T5ForConditionalGeneration(tiny())
    draw(theirs)
    theirs.save_pretrained(tmp_path)
    with_copies = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}

    save_file(with_copies, tmp_path / "model.safetensors")
    assert load(tmp_path).config.tied
    with_copies["encoder.embed_tokens.weight"] += 1
    save_file(with_copies, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"'encoder.embed_tokens.weight' should repeat 'shared.weight'"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"feed_forward_proj": "gated-nonsense", "dense_act_fn": None}, "gated-nonsense"),
        ({"feed_forward_proj": "sparse-relu"}, "sparse-relu"),
        ({"is_decoder": True}, "is_decoder"),
        ({"num_heads": 0}, "n_heads=0"),
        ({"d_kv": 10**9}, "d_head=1000000000"),
        ({"router_z_loss_coef": 0.1}, "router_z_loss_coef"),
    ],
)
def test_what_we_cannot_compute_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], named: str):
    twins(tmp_path)
    with pytest.raises(ConfigError, match=named):
        load(rewrite(tmp_path, **changes))


@pytest.mark.parametrize("tie", [True, False, None])
@pytest.mark.parametrize("scale", [True, False, None])
def test_outputs_are_scaled_where_the_folder_says_so(tmp_path: Path, scale: bool | None, tie: bool | None):
    """Its own word counts; without one, what it says of tying does, as it did before there was a word."""
    (source, target), theirs = batches(), T5ForConditionalGeneration(tiny()).eval()
    draw(theirs)
    theirs.save_pretrained(tmp_path)
    ours = load(rewrite(tmp_path, scale_decoder_outputs=scale, tie_word_embeddings=tie))
    theirs.config.scale_decoder_outputs = tie is not False if scale is None else scale
    said = ours(source.ids, target.ids, source_real=source.real, real=target.real)
    assert_close(said[target.real], run(theirs, source, target)[target.real], 1e-5)
