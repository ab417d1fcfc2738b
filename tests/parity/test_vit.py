"""ViT against `transformers`: every architecture, in and out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from helpers.parity.twins import (
    Twins,
    assert_close,
    assert_goes_out_again,
    assert_kept_by_our_own_folder,
    assert_same_gradients,
    twins_of,
)
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel, ViTConfig

from cutaway import build
from cutaway.checkpoints import export
from cutaway.data.images import image_folder
from cutaway.evaluation.examples import picture_numbers
from cutaway.model.model import Model
from cutaway.objectives.images import ImageLabels

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


@pytest.mark.parametrize("n_channels", [1, 3])
def test_their_processor_makes_the_same_numbers_of_a_picture(tmp_path: Path, n_channels: int):
    """Of one that has the model's size, and of one that is scaled down; as our training reads them from the disk."""
    size = {"image_size": 12, "patch_size": 4, "n_layers": 1, "d_model": 8, "n_heads": 1, "d_ff": 8, "n_classes": 2}
    mean, std = [0.3, 0.4, 0.5][:n_channels], [0.2, 0.25, 0.3][:n_channels]
    model = build("vit-ti-16", n_channels=n_channels, pixel_mean=mean, pixel_std=std, **size)
    export(model, tmp_path / "out")
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "out")
    assert type(processor).__name__.startswith("ViTImageProcessor")
    for side in (12, 31):
        pixels = np.random.default_rng(side).integers(0, 256, (side, side, n_channels), dtype=np.uint8)
        picture = Image.fromarray(pixels if n_channels == 3 else pixels[..., 0])
        (tmp_path / f"{side}" / "class").mkdir(parents=True)
        picture.save(tmp_path / f"{side}" / "class" / "a.png")
        read = image_folder(tmp_path / f"{side}", size=12, cache=tmp_path / "cache").pixels
        ours = ImageLabels(mean=mean, std=std).numbers(torch.from_numpy(np.array(read)))
        assert_close(ours, processor(picture, return_tensors="pt")["pixel_values"], 1e-5)
    found = picture_numbers(tmp_path / "out")
    assert (found["mean"], found["std"]) == (mean, std)


def test_a_model_that_does_not_know_its_numbers_exports_none(tmp_path: Path):
    both = twins(tmp_path / "theirs", "ViTForImageClassification")
    export(both.ours, tmp_path / "out")
    assert not (tmp_path / "out" / "preprocessor_config.json").exists()
