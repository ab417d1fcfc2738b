"""Pictures and their labels."""

from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from cutaway.data.batches import PictureBatches
from cutaway.data.images import Images, idx_images, image_folder, npz_images
from cutaway.errors import ConfigError
from cutaway.objectives import Changes, Pictures
from cutaway.training.datasets.shared import (
    Say,
    TrainingData,
    check_classes,
    held_out,
    holds_out,
    paths_of,
    refuse_one_answer,
)
from cutaway.training.recipe import Recipe, unknown_key


def pictures(recipe: Recipe, say: Say) -> TrainingData:
    d, t = recipe.data, recipe.train
    say(f"reading {', '.join(d.train)}")
    train = read_images(paths_of(recipe, d.train), size=d.image_size)
    labels = np.asarray(train.labels)
    refuse_one_answer(labels, train.names, ", ".join(d.train))
    kept, measured = np.arange(len(labels)), np.arange(0)
    valid: Images | None = None
    if d.valid:
        valid = read_images(paths_of(recipe, d.valid), size=d.image_size)
        if valid.names != train.names:
            raise ConfigError(f"the validation pictures have classes {valid.names}, the training ones {train.names}")
        if valid.pixels.shape[1:] != train.pixels.shape[1:]:
            raise ConfigError(f"the validation pictures are {_size(valid)}, the training ones {_size(train)}")
    elif holds_out(d):
        kept, measured = held_out(len(labels), recipe)
        check_classes(labels, kept, measured)
    channels, height, width = train.pixels.shape[1:]
    if height != width:
        raise ConfigError(
            f"the pictures are {_size(train)}, and square ones are read: --set data.image_size=64 cuts them out"
        )
    mean, std = statistics(train.pixels, kept)
    objective = Pictures(
        mean=mean, std=std, smoothing=recipe.objective.smoothing, changes=changes_of(recipe.objective.changes)
    )
    rows = t.rows or 256
    source = PictureBatches(train.pixels, labels, rows=rows, seed=recipe.seed, examples=kept)
    valid_source = None
    if valid is not None:
        valid_source = PictureBatches(valid.pixels, np.asarray(valid.labels), rows=rows, shuffle=False)
    elif len(measured):
        valid_source = PictureBatches(train.pixels, labels, rows=rows, shuffle=False, examples=measured)
    numbers: dict[str, Any] = {"n_classes": len(train.names), "labels": list(train.names), "n_channels": channels}
    numbers |= {"image_size": height, "pixel_mean": mean, "pixel_std": std}
    prints = f"{train.fingerprint} {'' if valid is None else valid.fingerprint} {len(kept)}"
    return TrainingData(objective, source, valid_source, prints, None, numbers)


def read_images(paths: list[Path], size: int | None) -> Images:
    """An image folder, an npz file, or two idx files: pictures, labels. `size` is for those that are decoded."""
    if len(paths) == 1 and paths[0].is_dir():
        return image_folder(paths[0], size=size)
    if len(paths) == 1 and paths[0].suffix == ".npz":
        return npz_images(paths[0], size=size)
    if len(paths) == 2 and size is not None:
        raise ConfigError(f"data.image_size={size}: pictures of idx files are read as they are, leave it out")
    if len(paths) == 2:
        return idx_images(*paths)
    raise ConfigError(
        f"pictures are a folder of folders, one .npz file, or two idx files (pictures, labels), not {len(paths)} files"
    )


def _size(images: Images) -> str:
    channels, height, width = images.pixels.shape[1:]
    return f"{height} × {width} pixels of {channels} channel{'s' * (channels > 1)}"


def statistics(pixels: Any, examples: Any) -> tuple[list[float], list[float]]:
    """The mean and the spread of each channel, from some ten thousand pictures, of which one is in memory at a time."""
    counts = np.zeros((pixels.shape[1], 256))
    for example in examples[:: max(1, len(examples) // 10_000)]:
        counts += [np.bincount(channel.ravel(), minlength=256) for channel in pixels[example]]
    shares, values = counts / counts.sum(axis=1, keepdims=True), np.arange(256) / 255
    mean = shares @ values
    std = np.maximum(np.sqrt((shares * (values - mean[:, None]) ** 2).sum(axis=1)), 0.01)
    return mean.astype(np.float32).round(4).tolist(), std.astype(np.float32).round(4).tolist()


def changes_of(values: dict[str, Any]) -> Changes:
    kinds = get_type_hints(Changes)
    for name, value in values.items():
        if name not in kinds:
            raise ConfigError(unknown_key(name, "[objective] of pictures", sorted(kinds)))
        if type(value) is not kinds[name] and (type(value), kinds[name]) != (int, float):
            raise ConfigError(f"objective.{name}={value!r} is not {kinds[name].__name__}")
    return Changes(**{name: kinds[name](value) for name, value in values.items()})
