"""Marian (the Transformer of 2017) against `transformers`: every architecture, in and out."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from helpers.parity.padded_batches import Batch, padded
from helpers.parity.twins import (
    Twins,
    assert_close,
    assert_goes_out_again,
    assert_kept_by_our_own_folder,
    assert_same_gradients,
    twins_of,
)
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import MarianConfig, MarianMTModel, PreTrainedModel

from cutaway.checkpoints import export, load
from cutaway.errors import CheckpointError
from cutaway.families import build
from cutaway.model.model import Model
from cutaway.model.positions import SinusoidalHalves

GRADIENTS = {torch.float32: 1e-5, torch.float64: 1e-9}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "MarianMTModel": ("translate", {}),
    "MarianMTModel scaled": ("translate", {"scale_embedding": True, "activation_function": "swish"}),
    "MarianMTModel uneven": ("translate", {"encoder_layers": 1, "decoder_layers": 3}),
    "MarianMTModel sides": (
        "translate",
        {"encoder_attention_heads": 2, "decoder_attention_heads": 6, "encoder_ffn_dim": 32, "decoder_ffn_dim": 48},
    ),
    "MarianMTModel heads": ("translate", {"encoder_attention_heads": 6, "decoder_layers": 1}),
    "MarianModel": ("hidden", {"decoder_attention_heads": 4, "decoder_ffn_dim": 16}),
}
CANNOT_SAY = [{"positions": "learned"}, {"tied": False}, {"norm_eps": 0.1}, {"start_id": None}]
COMPUTED = ("embed_positions.weight",)


def tiny(**changes: Any) -> MarianConfig:
    numbers: dict[str, Any] = {"vocab_size": 53, "max_position_embeddings": 12, "d_model": 24}
    for side in ("encoder", "decoder"):
        numbers |= {f"{side}_layers": 2, f"{side}_attention_heads": 3, f"{side}_ffn_dim": 40}
    ids = {"pad_token_id": 1, "decoder_start_token_id": 1, "eos_token_id": 0, "forced_eos_token_id": 0}
    return MarianConfig(**numbers | ids | changes)


def twins(folder: Path, case: str, dtype: torch.dtype = torch.float32) -> Twins:
    theirs = getattr(transformers, case.split()[0])(tiny(**TASKS[case][1]))
    if hasattr(theirs, "final_logits_bias"):  # a buffer, so it is not drawn with the weights
        theirs.final_logits_bias.normal_()
    return twins_of(theirs, folder, dtype)


def without_casts(theirs: PreTrainedModel) -> None:
    """Its positions are rounded to fp32, whatever the weights are: here they are as exact as ours."""
    for stack in (theirs.get_encoder(), theirs.get_decoder()):
        exact = SinusoidalHalves(*stack.embed_positions.weight.shape).rows()
        assert_close(stack.embed_positions.weight.double(), exact, 1e-7)
        stack.embed_positions.weight.data = exact


def sentences() -> tuple[Batch, Batch]:
    """Sources and targets whose lengths have nothing to do with each other."""
    return padded([9, 5, 2], "right", 53), padded([3, 8, 6], "right", 53, seed=1)


def our_answers(model: Model, source: Batch, target: Batch) -> Tensor:
    return model(source.ids, target.ids, source_real=source.real, real=target.real)[target.real]


def their_answers(model: PreTrainedModel, source: Batch, target: Batch) -> Tensor:
    output = model(
        source.ids,
        attention_mask=source.mask,
        decoder_input_ids=target.ids,
        decoder_attention_mask=target.mask,
        use_cache=False,
    )
    return output[0][target.real]


@pytest.mark.parametrize("dtype", GRADIENTS, ids=str)
@pytest.mark.parametrize("case", TASKS)
def test_answers_and_gradients(tmp_path: Path, case: str, dtype: torch.dtype):
    both, (source, target) = twins(tmp_path / "theirs", case, dtype), sentences()
    assert both.ours.config.task == TASKS[case][0]
    ours, theirs = our_answers(both.ours, source, target), their_answers(both.theirs, source, target)
    assert_close(ours, theirs, 1e-5 if dtype == torch.float32 else 1e-6)
    if dtype == torch.float64:
        without_casts(both.theirs)
        theirs = their_answers(both.theirs, source, target)
        assert_close(ours, theirs, 1e-10)
    assert_same_gradients(both, ours, theirs, GRADIENTS[dtype], tmp_path / "gradients")


@pytest.mark.parametrize("case", TASKS)
def test_goes_out_and_is_kept(tmp_path: Path, case: str):
    both, batch = twins(tmp_path / "theirs", case), sentences()
    assert_goes_out_again(both, lambda it: their_answers(it, *batch), tmp_path / "out", COMPUTED)
    assert_kept_by_our_own_folder(both, lambda it: our_answers(it, *batch), tmp_path / "native")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_stored_positions_are_known_in_every_precision_and_others_are_refused(tmp_path: Path, dtype: torch.dtype):
    """Older folders hold the tables that we compute, as exactly as their type can say them."""
    model, stored = twins(tmp_path / "theirs", "MarianMTModel").ours, tmp_path / "stored"
    stored.mkdir()
    (stored / "config.json").write_bytes((tmp_path / "theirs" / "config.json").read_bytes())
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    table, off = SinusoidalHalves(12, 24).rows(), 4 * max(torch.finfo(dtype).eps, 1e-4)
    for side in ("encoder", "decoder"):
        tensors[f"model.{side}.embed_positions.weight"] = table.to(dtype, copy=True)
    save_file(tensors, stored / "model.safetensors")
    assert all(map(torch.equal, load(stored).parameters(), model.parameters()))
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight"
        for place in ((0, 0), (11, 23)):
            other = table.clone()
            other[place] += off
            save_file(tensors | {name: other.to(dtype)}, stored / "model.safetensors")
            with pytest.raises(CheckpointError, match=f"'{name}' is not the table that this model computes"):
                load(stored)


def test_three_matrices_for_one_vocabulary_are_refused(tmp_path: Path):
    """Since transformers 5 an untied output unties source and target as well, which no published model has."""
    theirs = MarianMTModel(tiny(tie_word_embeddings=False))
    with pytest.raises(CheckpointError, match=r"should repeat 'model\.shared\.weight'"):
        twins_of(theirs, tmp_path)


@pytest.mark.parametrize("change", CANNOT_SAY, ids=str)
def test_what_the_layout_cannot_say_does_not_go_out(tmp_path: Path, change: dict[str, Any]):
    numbers = {
        "vocab_size": 11,
        "max_len": 8,
        "d_model": 8,
        "n_heads": 2,
        "positions": "sinusoidal_halves",
        "start_id": 1,
    }
    with pytest.raises(CheckpointError, match=next(iter(change))):
        export(build("transformer-tiny", **numbers | change), tmp_path)
