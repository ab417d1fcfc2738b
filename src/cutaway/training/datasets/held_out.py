"""Validation examples that are held out of the training files, and examples that nothing can be learnt from."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from cutaway.data.cache import Array
from cutaway.data.order import HELD_OUT, Indices, shuffled
from cutaway.errors import ConfigError
from cutaway.training.recipe import DataPart, Recipe


def paths_of(recipe: Recipe, names: Iterable[str]) -> list[Path]:
    return [Path(recipe.data.root) / name for name in names]


def holds_out(d: DataPart) -> bool:
    """Whether some of the training examples are kept for validation."""
    return not d.valid and bool(d.valid_share or d.valid_last)


def n_to_train_on(n: int, d: DataPart) -> int:
    """How many of n examples are left for training."""
    held = d.valid_last or round(n * d.valid_share)
    if 0 < held < n:
        return n - held
    key = f"data.valid_last={d.valid_last}" if d.valid_last else f"data.valid_share={d.valid_share}"
    why = "none is left to train on" if held > 0 else "none is held out for validation"
    unit = "example" if n == 1 else "examples (for running text, characters)"
    raise ConfigError(f"{key} of {n:,} {unit}: {why}; give more data, or change that value (0: no validation)")


def held_out(n: int, recipe: Recipe) -> tuple[Indices, Indices]:
    """The examples for training and those for validation: the last `valid_last`, or a random share.

    Files are often sorted, by class or by length: the last share would be another kind of examples.
    """
    kept = n_to_train_on(n, recipe.data)
    order = np.arange(n)
    if not recipe.data.valid_last:
        order = shuffled(order, n, recipe.seed, HELD_OUT)
    return np.sort(order[:kept]), np.sort(order[kept:])


def check_classes(labels: Indices, train: Indices, valid: Indices) -> None:
    """Refuses validation examples of a class without training examples: a file may be sorted by class."""
    unseen = np.setdiff1d(labels[valid], labels[train])
    if len(unseen):
        raise ConfigError(
            f"class {unseen[0]} occurs in the held-out examples but not in the training examples; if the file is "
            "sorted by class, use data.valid_share, a random share, instead of data.valid_last"
        )


def refuse_one_label(labels: Array, names: Sequence[str] | None, where: str) -> None:
    """With a single label there is nothing to learn, and every answer is right."""
    if len(labels) and (labels == labels[0]).all():
        only = labels[0] if names is None else names[labels[0]]
        raise ConfigError(f"all labels in {where} are {only}: at least two different ones are needed")


def check_length(seq_len: int, extra: int, least: int = 1) -> None:
    """Refuses rows in which special tokens leave no room for text."""
    if seq_len < extra + least:
        many = f"{least} tokens" if least > 1 else "a token"
        raise ConfigError(f"data.seq_len={seq_len} leaves no room for {many} beside {extra} special ones: allow more")
