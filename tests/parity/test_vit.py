"""ViT against `transformers`: every architecture, in and out."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from parity.peer import (
    Twins,
    assert_close,
    assert_goes_out_again,
    assert_kept_by_our_own_folder,
    assert_same_gradients,
    twins_of,
)
from torch import Tensor
from transformers import PreTrainedModel, ViTConfig

from cutaway.model.model import Model

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
GRADIENTS = {torch.float32: 1e-5, torch.float64: 1e-9}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "ViTForImageClassification": ("classify", {"num_labels": 7}),
    "ViTForImageClassification unbiased": ("classify", {"qkv_bias": False, "hidden_act": "gelu_new"}),
    "ViTForImageClassification grey": ("classify", {"num_channels": 1, "image_size": [12, 12], "patch_size": [3, 3]}),
    "ViTForImageClassification one": ("regress", {"num_labels": 1}),
    "ViTModel": ("hidden", {}),
    "ViTModel without pooler": ("hidden", {}),
}


def twins(folder: Path, case: str, dtype: torch.dtype = torch.float32) -> Twins:
    numbers: dict[str, Any] = {"image_size": 12, "patch_size": 4, "hidden_size": 24, "num_hidden_layers": 2}
    numbers |= {"num_attention_heads": 3, "intermediate_size": 40, "layer_norm_eps": 0.01}
    config = ViTConfig(**numbers | TASKS[case][1])
    return twins_of(getattr(transformers, case.split()[0])(config, **options(case)), folder, dtype)


def options(case: str) -> dict[str, Any]:
    return {"add_pooling_layer": False} if case.endswith("without pooler") else {}


def pictures(both: Twins) -> Tensor:
    return torch.randn(3, both.ours.config.n_channels, 12, 12, dtype=both.ours.dtype)


def our_answers(model: Model, images: Tensor) -> Tensor:
    hidden = model.hidden(images)
    pool = getattr(model.head, "pool", None) if model.config.task == "hidden" else None
    return torch.cat([model.head(hidden).flatten(), *([] if pool is None else [pool(hidden).flatten()])])


def their_answers(model: PreTrainedModel, images: Tensor) -> Tensor:
    output = model(images)
    answers = [output.get(name) for name in ("logits", "last_hidden_state", "pooler_output")]
    return torch.cat([answer.flatten() for answer in answers if answer is not None])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", TASKS)
def test_answers_and_gradients(tmp_path: Path, case: str, dtype: torch.dtype):
    both = twins(tmp_path / "theirs", case, dtype)
    assert both.ours.config.task == TASKS[case][0]
    images = pictures(both)
    ours, theirs = our_answers(both.ours, images), their_answers(both.theirs, images)
    assert_close(ours, theirs, TOLERANCE[dtype])
    assert_same_gradients(both, ours, theirs, GRADIENTS[dtype], tmp_path / "gradients")


@pytest.mark.parametrize("case", TASKS)
def test_goes_out_and_is_kept(tmp_path: Path, case: str):
    both = twins(tmp_path / "theirs", case)
    images = pictures(both)
    assert_goes_out_again(both, lambda it: their_answers(it, images), tmp_path / "out", **options(case))
    assert_kept_by_our_own_folder(both, lambda it: our_answers(it, images), tmp_path / "native")
