"""What the values of a recipe may be: ranges, choices, and values that exclude each other."""

import dataclasses
from typing import Any

from cutaway.errors import ConfigError
from cutaway.training.recipe import ObjectivePart, Recipe, unknown_key
from cutaway.training.tasks import TASKS, is_windowed

POSITIVE = (
    "train.steps", "train.tokens", "train.rows", "train.accumulate", "train.workers", "train.threads", "data.seq_len",
    "data.image_size", "evaluate.every", "evaluate.log", "checkpoint.every", "checkpoint.keep", "tokenizer.cuts",
)  # fmt: skip
NOT_NEGATIVE = (
    "train.average", "train.lora_rank", "train.spike", "data.valid_last", "data.skip_lines", "optimizer.rate",
    "optimizer.matrix_rate", "optimizer.momentum", "optimizer.eps", "optimizer.weight_decay", "optimizer.clip",
    "schedule.warmup", "evaluate.batches", "evaluate.patience", "evaluate.samples",
    "objective.agree", "objective.auxiliary",
)  # fmt: skip
SHARES = (
    "train.ema", "data.valid_share", "data.wrap", "objective.smoothing", "objective.mask_share", "schedule.final",
    "schedule.decay", "tokenizer.dropout", "optimizer.layer_decay",
)  # fmt: skip
CHOICES = {
    "train.precision": ("fp32", "bf16"),
    "train.compile": ("no", "blocks", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
    "data.split": ("file", "line", "form_feed", "blank_line"),
    "data.format": ("auto", "text", "table", "parallel", "images"),
    "objective.kind": tuple(TASKS),
}


def check_recipe(recipe: Recipe, where: str) -> None:
    """Refuses values that make no sense; `where` names the recipe in errors."""
    if (recipe.model.size is None) == (recipe.model.start is None):
        raise ConfigError(f"{where}: [model] needs a `size` (new weights) or a `start` (a trained model), not both")
    for least, names in {1: POSITIVE, 0: NOT_NEGATIVE + SHARES}.items():
        for name in names:
            value = value_of(recipe, name)
            if value is not None and not value >= least:
                raise ConfigError(f"{where}: {name}={value} must be at least {least}")
    for name in SHARES:
        if value_of(recipe, name) > 1:
            raise ConfigError(f"{where}: {name}={value_of(recipe, name)} is a share, at most 1")
    for name, known in CHOICES.items():
        if (chosen := value_of(recipe, name)) not in known:
            raise ConfigError(f"{where}: {name}={chosen!r} is not one of {', '.join(known)}")
    _check_objective(recipe, where)
    _check_dropout(recipe, where)
    t, d = recipe.train, recipe.data
    if is_windowed(recipe) and t.rows is None and t.tokens < d.seq_len:
        raise ConfigError(
            f"{where}: train.tokens={t.tokens} is less than one window of data.seq_len={d.seq_len}: raise "
            f"train.tokens or lower data.seq_len"
        )
    if t.average and t.ema:
        raise ConfigError(
            f"{where}: train.average={t.average} and train.ema={t.ema} are two ways to average the weights: set one "
            f"of them to 0"
        )


def value_of(recipe: Recipe, name: str) -> Any:
    """The value of a key such as train.steps."""
    table, _, key = name.partition(".")
    return getattr(getattr(recipe, table), key)


def _check_objective(recipe: Recipe, where: str) -> None:
    o = recipe.objective
    if o.changes and o.kind != "images":
        known = [part.name for part in dataclasses.fields(ObjectivePart)]
        raise ConfigError(f"{where}: {unknown_key(next(iter(o.changes)), '[objective]', known)}")
    if o.agree and o.kind != "translate":
        raise ConfigError(f"{where}: objective.agree={o.agree} is only for translate: leave it out")


def _check_dropout(recipe: Recipe, where: str) -> None:
    t, kind = recipe.tokenizer, recipe.objective.kind
    if t.dropout and kind != "translate":
        raise ConfigError(f"{where}: tokenizer.dropout={t.dropout} is only for translate, not for {kind}: leave it out")
    if t.dropout and t.kind not in (None, "bpe"):
        raise ConfigError(f"{where}: tokenizer.dropout={t.dropout} needs a BPE tokenizer; {t.kind} has no merges")
    if t.dropout == 1:
        raise ConfigError(f"{where}: tokenizer.dropout=1 leaves no merges, so all segmentations are equal: choose less")
