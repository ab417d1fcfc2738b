"""Images and their classes."""

from pathlib import Path
from typing import Any

import numpy as np

from cutaway.data.batches import ImageBatches
from cutaway.data.images import Images, idx_images, image_folder, npz_images
from cutaway.data.order import Indices
from cutaway.errors import ConfigError
from cutaway.training.datasets.held_out import check_classes, held_out, holds_out, paths_of, refuse_one_label
from cutaway.training.datasets.training_data import Note, TrainingData
from cutaway.training.recipe import Recipe
from cutaway.training.tasks import task_of


class ImageFiles:
    """The images of a recipe."""

    def __init__(self, recipe: Recipe, note: Note) -> None:
        self.recipe, self.note, self.data = recipe, note, recipe.data

    def prepare(self) -> TrainingData:
        recipe, d, rows = self.recipe, self.data, self.recipe.train.rows or 256
        self.note(f"reading {', '.join(d.train)}")
        train = read_images(paths_of(recipe, d.train), size=d.image_size)
        refuse_one_label(train.labels, train.names, ", ".join(d.train))
        valid, kept, measured = self._split(train)
        channels, height, width = train.pixels.shape[1:]
        if height != width:
            raise ConfigError(f"the images are {_size(train)}; --set data.image_size=64 crops them to squares")
        statistics = mean_and_std(train.pixels, kept)
        batches = ImageBatches(train.pixels, train.labels, rows=rows, seed=recipe.seed, examples=kept)
        valid_batches = None
        if valid is not None:
            valid_batches = ImageBatches(valid.pixels, valid.labels, rows=rows, shuffle=False, examples=measured)
        settings: dict[str, Any] = {
            "n_classes": len(train.names), "labels": list(train.names), "n_channels": channels, "image_size": height,
            "pixel_mean": statistics[0], "pixel_std": statistics[1],
        }  # fmt: skip
        other = "" if valid is None or valid is train else valid.fingerprint
        return TrainingData(
            task=task_of(recipe),
            objective=task_of(recipe).objective(recipe, statistics),
            train=batches,
            valid=valid_batches,
            fingerprint=f"{train.fingerprint} {other} {len(kept)}",
            model_settings=settings,
        )

    def _split(self, train: Images) -> tuple[Images | None, Indices, Indices]:
        """The images to validate with, and which of both are used."""
        d, every = self.data, np.arange(len(train))
        if d.valid:
            valid = read_images(paths_of(self.recipe, d.valid), size=d.image_size)
            if valid.names != train.names:
                raise ConfigError(f"validation images have classes {valid.names}, training images {train.names}")
            if valid.pixels.shape[1:] != train.pixels.shape[1:]:
                raise ConfigError(f"validation images are {_size(valid)}, training images {_size(train)}")
            return valid, every, np.arange(len(valid))
        if not holds_out(d):
            return None, every, every[:0]
        kept, measured = held_out(len(train), self.recipe)
        check_classes(np.asarray(train.labels), kept, measured)
        return train, kept, measured


def read_images(paths: list[Path], size: int | None) -> Images:
    """A folder of images, an npz file, or two idx files (images, labels); `size` is for encoded images."""
    if len(paths) == 1 and paths[0].is_dir():
        return image_folder(paths[0], size=size)
    if len(paths) == 1 and paths[0].suffix == ".npz":
        return npz_images(paths[0], size=size)
    if len(paths) == 2 and size is not None:
        raise ConfigError(f"data.image_size={size}: images of idx files are not resized, leave it out")
    if len(paths) == 2:
        return idx_images(*paths)
    raise ConfigError(
        f"images are a folder with a folder for each class, an .npz file, or two idx files (images, labels), not "
        f"{len(paths)} files"
    )


def mean_and_std(pixels: Any, examples: Any) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, from some ten thousand images, one of them in memory at a time."""
    counts = np.zeros((pixels.shape[1], 256))
    for example in examples[:: max(1, len(examples) // 10_000)]:
        counts += [np.bincount(channel.ravel(), minlength=256) for channel in pixels[example]]
    shares, values = counts / counts.sum(axis=1, keepdims=True), np.arange(256) / 255
    mean = shares @ values
    std = np.maximum(np.sqrt((shares * (values - mean[:, None]) ** 2).sum(axis=1)), 0.01)
    return mean.astype(np.float32).round(4).tolist(), std.astype(np.float32).round(4).tolist()


def _size(images: Images) -> str:
    channels, height, width = images.pixels.shape[1:]
    return f"{height} × {width} pixels of {channels} channel{'s' * (channels > 1)}"
