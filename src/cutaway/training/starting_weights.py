"""Where a model starts: new weights, or any model that `cutaway.load` takes.

A model that was trained for one task can start another: it keeps its body, and gets a new head with random weights.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from cutaway.bundled import names, said
from cutaway.data.corpus import digest
from cutaway.errors import ConfigError
from cutaway.families import build, config_of
from cutaway.model.config import Config
from cutaway.model.model import Model
from cutaway.objectives import NextToken
from cutaway.tokens import Tokenizer
from cutaway.training.datasets.training_data import TrainingData
from cutaway.training.recipe import Recipe, unknown_key
from cutaway.training.tasks import task_of

OF_THE_DATA = ("n_classes", "labels", "pixel_mean", "pixel_std")
MAY_CHANGE = (*OF_THE_DATA, "task", "pad_id", "start_id", "end_ids", "max_len", "pooler", "pooling")


def refuse_unknown_model(recipe: Recipe) -> None:
    """Refuses an unknown size, key of [model] or starting model, before anything is read."""
    if recipe.model.start is not None:
        start = Path(recipe.model.start)
        if recipe.model.start in names():
            return
        if not start.exists():
            within = "" if start.is_absolute() else f" in {Path.cwd()}, the current folder"
            within += said("; models by name are {}", start)
            raise ConfigError(f"[model] start={recipe.model.start!r}: there is no such folder or file{within}")
        return
    assert recipe.model.size is not None
    known = [field.name for field in dataclasses.fields(config_of(recipe.model.size))]
    for name in recipe.model.changes:
        if name not in known:
            raise ConfigError(unknown_key(name, f"[model] of size {recipe.model.size!r}", sorted(known)))


def starting_tokenizer(recipe: Recipe) -> Tokenizer | None:
    """The tokenizer of the starting model."""
    if recipe.model.start is None:
        return None
    from cutaway.checkpoints import tokenizer_of

    return tokenizer_of(recipe.model.start)


def refuse_another_tokenizer(recipe: Recipe, own: Tokenizer | None, used: Tokenizer | None) -> None:
    """Refuses a tokenizer that is not the starting model's: the rows of its embedding are its own tokens."""
    if own is None or used is None or digest(own) == digest(used):
        return
    t = recipe.tokenizer
    asked = f"kind={t.kind!r}" if t.file is None else f"file={t.file!r}"
    raise ConfigError(
        f"[tokenizer] {asked}, of {used.vocab_size:,} tokens, is not the tokenizer of the starting model, of "
        f"{own.vocab_size:,} tokens, in {recipe.model.start}: leave [tokenizer] out to use the model's own"
    )


def starting_model(recipe: Recipe, numbers: dict[str, Any], device: torch.device) -> tuple[Model, list[str]]:
    """The model at step 0, and the names of the parameters with new random weights."""
    task = {"task": task_of(recipe).head}
    if recipe.model.size is not None:
        known = config_of(recipe.model.size)
        config = known.with_(**(_fitting(known, numbers) | task | recipe.model.changes))
        model = build(config, seed=recipe.seed, device=device)
        return model, [name for name, _ in model.named_parameters()]
    from cutaway.checkpoints import load

    assert recipe.model.start is not None
    old = load(recipe.model.start)
    numbers = {name: value for name, value in numbers.items() if name in OF_THE_DATA}
    config = old.config.with_(**({"n_classes": None, "labels": None} | numbers | task | recipe.model.changes))
    model = build(config, seed=recipe.seed, device=device)
    return model, _take_over(old, model)


def refuse_long_rows(recipe: Recipe, dataset: TrainingData, model: Model) -> None:
    """Refuses rows that are longer than the model reads: the first would end the run, perhaps after hours."""
    max_len = getattr(model, "max_len", None)
    for source in (dataset.train, dataset.valid):
        if source is None or max_len is None:
            continue
        widest = recipe.data.seq_len  # of windows
        if hasattr(source, "buckets"):
            widest = max(max(bucket.widths) for bucket in source.buckets.buckets)
            widest -= isinstance(dataset.objective, NextToken)  # the last token is only a target
        if widest > max_len:
            raise ConfigError(
                f"rows of {widest} tokens are longer than the model's max_len={max_len}: set data.seq_len to that"
            )


def _fitting(config: Config, numbers: dict[str, Any]) -> dict[str, Any]:
    """The settings that this family has: a Llama has no max_len, a ViT no vocabulary."""
    known = {field.name for field in dataclasses.fields(config)}
    return {name: value for name, value in numbers.items() if name in known and value is not None}


@torch.no_grad()
def _take_over(old: Model, new: Model) -> list[str]:
    """Copies every parameter that both have; only a head may differ. The names of those that are new."""
    before, after = old.config.to_dict(), new.config.to_dict()
    for name in before:  # another number of heads fits the same matrices, but means something else
        if before[name] != after[name] and name not in MAY_CHANGE and not name.endswith("dropout"):
            raise ConfigError(
                f"[model] {name}={after[name]!r}, but the starting model has {before[name]!r}: its task and dropout "
                f"may change, not its body"
            )
    given, drawn = dict(old.named_parameters()), []
    for name, parameter in new.named_parameters():
        fitting = (given[place] for place in _places(name) if place in given)
        found = next((old_one for old_one in fitting if old_one.shape == parameter.shape), None)
        if found is not None:
            parameter.copy_(found)
        elif name.startswith("head"):
            drawn.append(name)
        else:
            raise ConfigError(
                f"the starting model has no {name!r} of shape {tuple(parameter.shape)}: [model] may change its task "
                f"and dropout, not the size of its body"
            )
    return drawn


def _places(name: str) -> Iterator[str]:
    """The names that a parameter may have in a model of another task: BERT's pre-training head has two heads."""
    yield name
    for alone, within in (("head.pool.", "head.next_sentence.pool."), ("head.", "head.masked.")):
        for here, there in ((alone, within), (within, alone)):
            if name.startswith(here):
                yield there + name.removeprefix(here)
