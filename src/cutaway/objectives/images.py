"""Image classification (ViT). Images travel as bytes; they become numbers, and are augmented, on the device.

A Vision Transformer needs more images than there usually are: each is shifted, mirrored, partly erased, or mixed with
another one, whose label counts by the share that is visible (Yun et al. 2019, CutMix; Zhang et al. 2018, mixup).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from cutaway.model.model import Model
from cutaway.model.upcast import upcast
from cutaway.objectives.loss import IGNORED
from cutaway.objectives.objective import Arrays, Objective, Tensors


@dataclass(frozen=True)
class Augmentation:
    """How images are varied while training. All 0: not at all."""

    shift: int = 0  # pixels, at most, in each direction
    mirror: bool = False
    turn: float = 0.0  # degrees, at most
    stretch: float = 0.0  # the share, at most, by which each side grows or shrinks
    negative: float = 0.0  # the probability that light and dark are swapped
    erase: float = 0.0  # the probability that a rectangle is set to 0, the mean of all images
    colour: float = 0.0  # how far brightness, contrast and saturation may change
    cutmix: float = 0.0  # the probability that a rectangle comes from another image
    mixup: float = 0.0  # the probability that another image is blended in


class ImageLabels(Objective):
    """From `image` (bytes) and `label`."""

    targets = {"label": "targets"}

    def __init__(
        self,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        smoothing: float = 0.0,
        augmentation: Augmentation | None = None,
    ) -> None:
        self.mean, self.std, self.smoothing = tuple(mean), tuple(std), smoothing
        self.augmentation = augmentation or Augmentation()
        self._statistics: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def prepare(self, batch: Arrays, random: np.random.Generator) -> Arrays:
        label = np.where(batch["example"] >= 0, batch["label"], IGNORED)
        return {"image": batch["image"], "targets": label}

    def augment(self, batch: Tensors, generator: torch.Generator) -> Tensors:
        """The batch with augmented images."""
        images = self.numbers(_negative(batch["image"], self.augmentation.negative, generator))
        targets = batch["targets"]
        images = _move(images, self.augmentation, generator)
        images = _recolour(images, self.augmentation.colour, generator)
        images = _erase(images, self.augmentation.erase, generator)
        images, other, share = _mix(images, self.augmentation, generator)
        return {"image": images, "targets": targets, "other_targets": targets[other], "share": share}

    def numbers(
        self, image: UInt8[Tensor, "batch channel height width"]
    ) -> Float[Tensor, "batch channel height width"]:
        """Bytes as numbers around 0."""
        if image.device not in self._statistics:  # once: a copy to the device waits for all that is queued there
            mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
            self._statistics[image.device] = mean.to(image.device), std.to(image.device)
        mean, std = self._statistics[image.device]
        return (image.float() / 255 - mean) / std

    def losses(self, model: Model, batch: Tensors) -> dict[str, Tensor]:
        image = batch["image"] if batch["image"].is_floating_point() else self.numbers(batch["image"])
        scores = upcast(model(image))
        loss = self._loss(scores, batch["targets"])
        if "share" in batch:
            share = batch["share"]
            loss = share * loss + (1 - share) * self._loss(scores, batch["other_targets"])
        return {"label": loss.sum()}

    def answers(self, model: Model, batch: Tensors) -> Tensor:
        """The logits of the classes."""
        return model(self.numbers(batch["image"]))

    def _loss(self, scores: Float[Tensor, "batch n"], targets: Int[Tensor, "batch"]) -> Float[Tensor, "batch"]:
        return F.cross_entropy(scores, targets, ignore_index=IGNORED, reduction="none", label_smoothing=self.smoothing)


def _uniform(n: int, low: float, high: float, like: Tensor, generator: torch.Generator) -> Float[Tensor, "n"]:
    return torch.rand(n, generator=generator, device=like.device) * (high - low) + low


def _negative(images: UInt8[Tensor, "..."], chance: float, generator: torch.Generator) -> UInt8[Tensor, "..."]:
    if not chance:
        return images
    hit = _uniform(len(images), 0.0, 1.0, images, generator) < chance
    return torch.where(hit.view(-1, 1, 1, 1), 255 - images, images)


def _move(images: Tensor, c: Augmentation, generator: torch.Generator) -> Tensor:
    """Shifts, mirrors, rotates and stretches in one look-up; what comes in from outside is 0, the mean."""
    if not (c.shift or c.mirror or c.turn or c.stretch):
        return images
    n, _, height, width = images.shape
    angle = _uniform(n, -c.turn, c.turn, images, generator) * (torch.pi / 180)
    wide, high = (1 + _uniform(n, -c.stretch, c.stretch, images, generator) for _ in range(2))
    right = torch.randint(-c.shift, c.shift + 1, (n,), generator=generator, device=images.device) * (2 / width)
    down = torch.randint(-c.shift, c.shift + 1, (n,), generator=generator, device=images.device) * (2 / height)
    flip = torch.ones(n, device=images.device)
    if c.mirror:
        flip = torch.randint(0, 2, (n,), generator=generator, device=images.device) * 2.0 - 1
    zero_one = torch.stack(
        [
            torch.stack([angle.cos() * wide * flip, -angle.sin() * high, right], dim=1),
            torch.stack([angle.sin() * wide * flip, angle.cos() * high, down], dim=1),
        ],
        dim=1,
    )
    grid = F.affine_grid(zero_one, list(images.shape), align_corners=False)
    exact = not (c.turn or c.stretch)  # whole pixels are moved, not interpolated
    return F.grid_sample(images, grid, mode="nearest" if exact else "bilinear", align_corners=False)


def _recolour(images: Tensor, far: float, generator: torch.Generator) -> Tensor:
    if not far:
        return images
    n = len(images)
    bright, contrast, colour = (_uniform(n, -far, far, images, generator).view(n, 1, 1, 1) for _ in range(3))
    grey = images.mean(dim=1, keepdim=True)
    images = grey + (images - grey) * (1 + colour)
    middle = images.mean(dim=(1, 2, 3), keepdim=True)
    return middle + (images - middle) * (1 + contrast) + bright


def _rectangles(images: Tensor, share: Tensor, generator: torch.Generator) -> Tensor:
    """True inside a random rectangle that covers about this share of each image."""
    n, _, height, width = images.shape
    side = share.sqrt()
    ratio = torch.exp(_uniform(n, -0.5, 0.5, images, generator))
    high, wide = (side * ratio).clamp(max=1) * height, (side / ratio).clamp(max=1) * width
    top = _uniform(n, 0.0, 1.0, images, generator) * (height - high)
    left = _uniform(n, 0.0, 1.0, images, generator) * (width - wide)
    row = torch.arange(height, device=images.device)[None] + 0.5
    column = torch.arange(width, device=images.device)[None] + 0.5
    in_row = (row >= top[:, None]) & (row < (top + high)[:, None])
    in_column = (column >= left[:, None]) & (column < (left + wide)[:, None])
    return (in_row[:, :, None] & in_column[:, None, :])[:, None]


def _erase(images: Tensor, chance: float, generator: torch.Generator) -> Tensor:
    if not chance:
        return images
    share = _uniform(len(images), 0.02, 0.3, images, generator)
    blotted = _rectangles(images, share, generator)
    hit = _uniform(len(images), 0.0, 1.0, images, generator) < chance
    return images.masked_fill(blotted & hit.view(-1, 1, 1, 1), 0.0)


def _mix(images: Tensor, c: Augmentation, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """The images, which other one each is mixed with, and the share of its own that is left."""
    n = len(images)
    other = torch.arange(n, device=images.device).roll(1)  # the order of a batch is random already
    if not (c.cutmix or c.mixup):
        return images, other, torch.ones(n, device=images.device)
    inside = _rectangles(images, _uniform(n, 0.0, 1.0, images, generator), generator)
    pasted = torch.where(inside, images[other], images)
    pasted_share = 1 - inside.float().mean(dim=(1, 2, 3))
    through = _uniform(n, 0.5, 1.0, images, generator)
    blended = images * through.view(-1, 1, 1, 1) + images[other] * (1 - through).view(-1, 1, 1, 1)
    fate = _uniform(n, 0.0, 1.0, images, generator)
    cut, mix = fate < c.cutmix, (fate >= c.cutmix) & (fate < c.cutmix + c.mixup)
    images = torch.where(cut.view(-1, 1, 1, 1), pasted, torch.where(mix.view(-1, 1, 1, 1), blended, images))
    share = torch.where(cut, pasted_share, torch.where(mix, through, torch.ones_like(through)))
    return images, other, share
