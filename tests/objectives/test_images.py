"""Pictures: unchanged unless asked; whole pixels move exactly; labels count by the pixels that are left."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_models import tiny
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cutaway.objectives import IGNORED, as_tensors, mean_loss
from cutaway.objectives.images import Augmentation, ImageLabels

MEAN, STD = (0.2, 0.4, 0.6), (0.5, 0.25, 0.1)


def some(n: int, height: int = 8, width: int = 8, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    image = torch.randint(0, 256, (n, 3, height, width), generator=generator, dtype=torch.uint8)
    return {"image": image, "targets": torch.randint(0, 7, (n,), generator=generator)}


def seen(batch: dict[str, Tensor], seed: int = 0, **changes: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """The pictures as numbers, and the batch as a step sees it."""
    objective = ImageLabels(mean=MEAN, std=STD, augmentation=Augmentation(**changes))
    return objective.numbers(batch["image"]), objective.augment(batch, torch.Generator().manual_seed(seed))


def moved(picture: Tensor, right: int, down: int) -> Tensor:
    """Each pixel becomes the one that stood so many places further on; outside is 0."""
    height, width = picture.shape[-2:]
    padded = F.pad(picture, (9, 9, 9, 9))
    return padded[:, 9 + down : 9 + down + height, 9 + right : 9 + right + width]


def test_bytes_become_numbers_around_zero() -> None:
    image = torch.tensor([[[[0, 255]], [[51, 102]], [[153, 204]]]], dtype=torch.uint8)
    numbers = ImageLabels(mean=MEAN, std=STD).numbers(image)
    expected = torch.tensor([[[[-0.4, 1.6]], [[-0.8, 0.0]], [[0.0, 2.0]]]])
    torch.testing.assert_close(numbers, expected, atol=1e-6, rtol=0)


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 9))
def test_without_changes_a_picture_is_itself(n: int, height: int, width: int) -> None:
    batch = some(n, height, width)
    numbers, shown = seen(batch)
    assert torch.equal(shown["image"], numbers)
    assert torch.equal(shown["targets"], batch["targets"])
    assert (shown["share"] == 1).all()


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_a_mirrored_picture_is_exactly_mirrored(height: int, width: int, seed: int) -> None:
    numbers, shown = seen(some(40, height, width), seed, mirror=True)
    same = [torch.equal(a, b) for a, b in zip(shown["image"], numbers, strict=True)]
    turned = [torch.equal(a, b.flip(-1)) for a, b in zip(shown["image"], numbers, strict=True)]
    assert all(a or b for a, b in zip(same, turned, strict=True))
    assert width == 1 or 5 < sum(turned) < 35


@pytest.mark.parametrize("mirror", [False, True])
@given(st.integers(2, 9), st.integers(2, 9), st.integers(0, 99))
def test_a_shifted_picture_is_exactly_shifted(mirror: bool, height: int, width: int, seed: int) -> None:
    numbers, shown = seen(some(60, height, width), seed, shift=1, mirror=mirror)
    found = set()
    for picture, original in zip(shown["image"], numbers, strict=True):
        ways = {(r, d, f) for r in (-1, 0, 1) for d in (-1, 0, 1) for f in {False, mirror}}
        fitting = [w for w in ways if torch.equal(picture, moved(original.flip(-1) if w[2] else original, w[0], w[1]))]
        assert fitting
        found |= set(fitting)
    assert len({(right, down) for right, down, _ in found}) == 9


def even(n: int, size: int = 8) -> dict[str, Tensor]:
    """Picture i has the value i everywhere: one sees where each pixel comes from."""
    image = torch.arange(n, dtype=torch.uint8)[:, None, None, None].expand(n, 3, size, size)
    return {"image": image, "targets": torch.arange(n) % 7}


def test_the_label_of_a_patched_picture_counts_by_the_pixels_that_are_left() -> None:
    batch = even(64)
    numbers, shown = seen(batch, cutmix=1.0)
    own = (shown["image"] == numbers).all(dim=1).float().mean(dim=(1, 2))
    assert torch.equal(shown["share"], own)
    assert torch.equal(shown["other_targets"], batch["targets"].roll(1))
    other = (shown["image"] == numbers.roll(1, 0)).all(dim=1).float().mean(dim=(1, 2))
    assert torch.equal(own + other, torch.ones(64))
    assert 0.4 < own.mean() < 0.6
    for picture, original in zip(shown["image"], numbers, strict=True):  # what is pasted is one rectangle
        inside = (picture != original).any(dim=0)
        assert int(inside.sum()) == int(inside.any(0).sum()) * int(inside.any(1).sum())


def test_a_picture_that_another_shines_through_is_their_mean() -> None:
    numbers, shown = seen(some(64), mixup=1.0)
    share = shown["share"].view(-1, 1, 1, 1)
    assert ((shown["share"] >= 0.5) & (shown["share"] <= 1)).all()
    torch.testing.assert_close(shown["image"], share * numbers + (1 - share) * numbers.roll(1, 0))


def test_a_negative_is_light_where_the_picture_is_dark() -> None:
    batch = some(1000)
    numbers, shown = seen(batch, negative=0.3)
    other, _ = seen({**batch, "image": 255 - batch["image"]})
    same, turned = ((shown["image"] == of).flatten(1).all(1) for of in (numbers, other))
    assert (same ^ turned).all()
    assert abs(turned.float().mean() - 0.3) < 5 * (0.3 * 0.7 / 1000) ** 0.5


def test_chances_are_chances() -> None:
    """1,000 pictures, within five standard deviations."""
    numbers, shown = seen(even(250), cutmix=0.5, mixup=0.25)
    whole = (shown["share"] == 1).float().mean()  # nothing happened, or the rectangle was smaller than a pixel
    assert abs(whole - 0.25) < 5 * (0.25 * 0.75 / 250) ** 0.5 + 0.02
    numbers, shown = seen(some(1000), erase=0.3)
    changed = (shown["image"] != numbers).flatten(1).any(1)
    assert abs(changed.float().mean() - 0.3) < 5 * (0.3 * 0.7 / 1000) ** 0.5 + 0.02


def test_a_blotted_picture_is_zero_in_a_rectangle_and_itself_elsewhere() -> None:
    numbers, shown = seen(some(50), erase=1.0)
    for picture, original in zip(shown["image"], numbers, strict=True):
        blotted = (picture == 0).all(0) & (original != 0).any(0)
        assert torch.equal(picture, original.masked_fill(blotted, 0.0))
        assert blotted.sum() <= 0.5 * 64


def test_colours_move_and_grey_stays_grey() -> None:
    grey = ImageLabels(mean=(0.5,) * 3, std=(0.5,) * 3, augmentation=Augmentation(colour=0.5))
    image = some(20)["image"][:, :1].expand(-1, 3, -1, -1)
    shown = grey.augment({"image": image, "targets": torch.zeros(20).long()}, torch.Generator().manual_seed(0))["image"]
    torch.testing.assert_close(shown[:, :1].expand_as(shown), shown)
    assert not torch.allclose(shown, grey.numbers(image))


@pytest.mark.parametrize("changes", [{"turn": 10.0}, {"stretch": 0.2}, {"turn": 5.0, "shift": 1, "mirror": True}])
def test_turned_and_stretched_pictures_keep_their_middle(changes: dict[str, Any]) -> None:
    image = torch.zeros(30, 3, 9, 9, dtype=torch.uint8)
    image[:, :, 2:7, 2:7] = 200
    numbers, shown = seen({"image": image, "targets": torch.zeros(30).long()}, **changes)
    torch.testing.assert_close(shown["image"][:, :, 4, 4], numbers[:, :, 4, 4], atol=1e-4, rtol=0)
    assert not torch.allclose(shown["image"], numbers, atol=1e-2)


@pytest.mark.parametrize("changes", [{"turn": 20.0}, {"stretch": 0.3}, {"turn": 20.0, "stretch": 0.3, "shift": 1}])
def test_a_slope_that_is_turned_or_stretched_is_a_slope_without_steps(changes: dict[str, Any]) -> None:
    """What falls between pixels is blended: each of them repeated or left out would be a stair."""
    slope = 8 * torch.arange(15, dtype=torch.uint8)[None, :] + 4 * torch.arange(15, dtype=torch.uint8)[:, None]
    image = slope.expand(20, 3, 15, 15)
    _, shown = seen({"image": image, "targets": torch.zeros(20).long()}, **changes)
    middle = shown["image"][:, :, 4:11, 4:11]
    for axis in (2, 3):
        rise = middle.diff(dim=axis)
        torch.testing.assert_close(rise, rise.mean(dim=(2, 3), keepdim=True).expand_as(rise), atol=1e-4, rtol=0)
        assert (rise[:, 0, 0, 0].diff().abs() > 1e-3).any()  # each picture in its own way


def test_the_same_numbers_give_the_same_pictures_and_others_do_not() -> None:
    changes = {"shift": 2, "mirror": True, "turn": 5.0, "erase": 0.5, "colour": 0.2, "cutmix": 0.3, "mixup": 0.3}
    first, again, other = (seen(some(8), seed, **changes)[1] for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["image"], other["image"])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_by_hand(smoothing: float) -> None:
    model = tiny("vit", dtype=torch.float32)
    objective = ImageLabels(mean=MEAN, std=STD, smoothing=smoothing, augmentation=Augmentation(cutmix=0.5, mixup=0.5))
    batch = some(6)
    shown = objective.augment(batch, torch.Generator().manual_seed(0))
    scores, share = model(shown["image"]), shown["share"]
    own, other = (
        F.cross_entropy(scores, targets, reduction="none", label_smoothing=smoothing)
        for targets in (batch["targets"], batch["targets"].roll(1))
    )
    torch.testing.assert_close(objective.losses(model, shown)["label"], (share * own + (1 - share) * other).sum())
    plain = F.cross_entropy(model(objective.numbers(batch["image"])), batch["targets"], label_smoothing=smoothing)
    prepared = {"image": batch["image"].numpy(), "targets": batch["targets"].numpy()}
    torch.testing.assert_close(mean_loss(objective, model, prepared), plain)
    torch.testing.assert_close(objective.answers(model, batch), model(objective.numbers(batch["image"])))


def test_rows_without_an_example_do_not_count() -> None:
    model, objective = tiny("vit", dtype=torch.float32), ImageLabels(mean=MEAN, std=STD)
    raw = {"example": np.array([5, -1, 6]), "image": some(3)["image"].numpy(), "label": np.array([1, 2, 3])}
    prepared = objective.prepare(raw, np.random.default_rng(0))
    assert prepared["targets"].tolist() == [1, IGNORED, 3]
    assert objective.counts(prepared) == {"label": 2}
    alone = objective.losses(model, as_tensors({name: values[[0, 2]] for name, values in prepared.items()}))["label"]
    torch.testing.assert_close(objective.losses(model, as_tensors(prepared))["label"], alone)
