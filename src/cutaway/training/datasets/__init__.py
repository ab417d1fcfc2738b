"""From a recipe to what is learnt from: the tokenizer, the examples, the objective, and where batches come from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cutaway.data.cache import cached, notes_to
from cutaway.data.table_files import text_of
from cutaway.errors import ConfigError
from cutaway.tokens import Tokenizer
from cutaway.training.datasets.shared import Say, TrainingData, holds_out, paths_of, what_is_lost
from cutaway.training.datasets.tables import columns_of, directions_of, rows_of_table, tables, training_rows
from cutaway.training.datasets.texts import texts, training_texts
from cutaway.training.recipe import Recipe

ON_TEXT = ("next_token", "masked", "pretrain", "spans")


def prepare(recipe: Recipe, start: Tokenizer | None, say: Say = lambda text: None) -> TrainingData:
    """Reads the data, trains the tokenizer where none is given, and chooses the objective."""
    if not recipe.data.train:
        raise ConfigError("[data] names no `train` files")
    with notes_to(say):
        dataset = _read(recipe, start, say)
    known = dataset.metrics()
    if dataset.valid is not None and recipe.evaluate.metric not in known:
        raise ConfigError(
            f"evaluate.metric={recipe.evaluate.metric!r} is not measured for objective {recipe.objective.kind!r}; "
            f"measured are {', '.join(known)}"
        )
    if dataset.valid is None and recipe.evaluate.patience:
        raise ConfigError(
            f"evaluate.patience={recipe.evaluate.patience} needs examples to measure with: data.valid, valid_share or "
            f"valid_last; or set it to 0"
        )
    dataset.notes += what_is_lost(dataset, recipe.data.seq_len)
    return dataset


def _read(recipe: Recipe, start: Tokenizer | None, say: Say) -> TrainingData:
    if recipe.objective.kind == "images":
        from cutaway.training.datasets.images import pictures

        return pictures(recipe, say)
    if recipe.objective.kind in ON_TEXT and recipe.data.format in ("auto", "text"):
        return texts(recipe, _tokenizer(recipe, start, say), say)
    for names in filter(None, (recipe.data.train, recipe.data.valid)):
        # a column that is not there is found before a tokenizer is trained
        next(iter(rows_of_table(recipe, names)), None)
    return tables(recipe, _tokenizer(recipe, start, say), say)


def _tokenizer(recipe: Recipe, start: Tokenizer | None, say: Say) -> Tokenizer:
    t = recipe.tokenizer
    if t.file is not None:
        return Tokenizer.load(Path(t.file))
    if t.kind is None:
        if start is None:
            raise ConfigError("[tokenizer] names neither a `file` nor a `kind` to train, and no model brings one along")
        return start
    from cutaway.tokens.train_tokenizer import train_tokenizer

    paths = paths_of(recipe, recipe.data.train)
    tags = sorted({target for _, target in directions_of(recipe)})
    vocab_size = 8000 if t.vocab_size is None and t.kind in ("bpe", "wordpiece", "unigram") else t.vocab_size
    settings: dict[str, Any] = {
        "kind": "tokenizer",
        "tokenizer": t.kind,
        "vocab_size": vocab_size,
        "lowercase": t.lowercase,
    }
    settings |= {"tags": tags, "data": repr(recipe.data), "objective": recipe.objective.kind}
    settings |= {"seed": recipe.seed} if holds_out(recipe.data) else {}  # it says what is held out

    def build(folder: Path) -> dict[str, Any]:
        say(f"training a {t.kind} tokenizer")
        assert t.kind is not None
        tokenizer = train_tokenizer(
            _training_texts(recipe), kind=t.kind, vocab_size=vocab_size, lowercase=t.lowercase, tags=tags,
            mask=recipe.objective.kind in ("masked", "pretrain") and t.kind != "wordpiece",
            special=[f"<extra_id_{i}>" for i in range(100)] if recipe.objective.kind == "spans" else [],
        )  # fmt: skip
        tokenizer.save(folder)
        return {"vocab_size": tokenizer.vocab_size}

    return Tokenizer.load(cached(paths, settings, build))


def _training_texts(recipe: Recipe) -> Iterator[str]:
    if recipe.objective.kind in ON_TEXT and recipe.data.format in ("auto", "text"):
        yield from training_texts(recipe)
        return
    names = columns_of(recipe)
    for row in training_rows(recipe):
        for name in names:
            yield text_of(row[name])
