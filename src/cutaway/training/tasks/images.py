"""Classes of images."""

from typing import Any, get_type_hints

from cutaway.errors import ConfigError
from cutaway.objectives.images import Augmentation, ImageLabels
from cutaway.training.recipe import Recipe, unknown_key
from cutaway.training.tasks.labels import samples

__all__ = ["objective", "samples"]


def objective(recipe: Recipe, statistics: tuple[list[float], list[float]]) -> ImageLabels:
    """From the mean and the standard deviation of each channel."""
    mean, std = statistics
    o = recipe.objective
    return ImageLabels(mean=mean, std=std, smoothing=o.smoothing, augmentation=augmentation(o.changes))


def augmentation(values: dict[str, Any]) -> Augmentation:
    """How images are varied, from the keys of [objective]."""
    types = get_type_hints(Augmentation)
    for name, value in values.items():
        if name not in types:
            raise ConfigError(unknown_key(name, "[objective] of images", sorted(types)))
        if type(value) is not types[name] and (type(value), types[name]) != (int, float):
            raise ConfigError(f"objective.{name}={value!r} is not {types[name].__name__}")
    return Augmentation(**{name: types[name](value) for name, value in values.items()})
