"""Tables and parallel texts: rows of text columns with their labels, or pairs in one direction or several."""

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any

import numpy as np

from cutaway.data.batches import Batch, Examples, Pairs, Source, padded_batch
from cutaway.data.buckets import Buckets
from cutaway.data.corpus import Corpus
from cutaway.data.labels import NO_TAG, LabelColumn
from cutaway.data.order import Indices
from cutaway.data.table_examples import Cuts, Dataset, is_blank, tokenised_columns
from cutaway.data.table_files import Row, Rows, read_parallel, read_table, several
from cutaway.errors import ConfigError, InputError
from cutaway.objectives import Translation
from cutaway.tokens import Tokenizer
from cutaway.training.datasets.shared import (
    Say,
    TrainingData,
    check_classes,
    check_lengths,
    held_out,
    holds_out,
    objective_for,
    paths_of,
    refuse_one_answer,
    special_numbers,
)
from cutaway.training.recipe import DataPart, Recipe


def directions_of(recipe: Recipe) -> list[tuple[str, str]]:
    """(en, de) for "en-de"; a target may be pt-BR."""
    ways = [way.partition("-") for way in recipe.data.directions]
    for source, _, target in ways:
        if not source or not target:
            raise ConfigError(f"data.directions={list(recipe.data.directions)}: write each as en-de, source and target")
    return [(source, target) for source, _, target in ways]


def columns_of(recipe: Recipe) -> list[str]:
    """The columns of text that the objective reads, as the files call them."""
    d = recipe.data
    if recipe.objective.kind == "translate":
        if d.directions:
            return sorted({side for way in directions_of(recipe) for side in way})
        return list(d.header[:2]) if d.format == "parallel" and d.header else [d.source, d.target]
    return [d.text] if d.second is None else [d.text, d.second]


def rows_of_table(recipe: Recipe, names: Sequence[str]) -> Rows:
    """The rows of all files, one after another."""
    d = recipe.data
    paths = paths_of(recipe, names)
    if d.format == "parallel":
        if len(paths) % 2:
            raise ConfigError(f"parallel files come in pairs: {len(paths)} are named")
        sides = tuple(d.header) if len(d.header) == 2 else (d.source, d.target)
        if missing := sorted(set(columns_of(recipe)) - set(sides)):
            raise ConfigError(f"no side of the parallel files is called {missing[0]!r}: data.header={list(d.header)}")
        tables = [
            read_parallel(a, b, names=sides)  # type: ignore[arg-type]
            for a, b in zip(paths[::2], paths[1::2], strict=True)
        ]
    else:
        wanted = columns_of(recipe) + ([d.label] if recipe.objective.kind in ("classify", "regress", "tag") else [])
        tables = [read_table(path, wanted, **quirks_of(d)) for path in paths]
    return tables[0] if len(tables) == 1 else several(tables)


def quirks_of(d: DataPart) -> dict[str, Any]:
    """How a table is read, where its suffix does not say it."""
    said = {"kind": d.table, "header": d.header or None, "quoted": d.quoted}
    return said | {"further_fields": d.further_fields, "skip_lines": d.skip_lines}


def training_rows(recipe: Recipe) -> Iterator[Row]:
    """The rows that are not held out: what a tokenizer may be trained on."""
    rows, names = rows_of_table(recipe, recipe.data.train), columns_of(recipe)
    if not holds_out(recipe.data):
        return iter(rows)
    kept = np.zeros(sum(not is_blank(row, names) for row in rows), dtype=bool)
    kept[held_out(len(kept), recipe)[0]] = True
    return compress((row for row in rows if not is_blank(row, names)), kept)


def tables(recipe: Recipe, tokenizer: Tokenizer, say: Say) -> TrainingData:
    d, kind = recipe.data, recipe.objective.kind
    if kind in ("pretrain", "spans"):
        raise ConfigError(f"objective {kind!r} reads running text, not tables: data.format = 'text'")
    if d.second is not None and kind not in ("classify", "regress", "translate"):
        raise ConfigError(f"data.second={d.second!r}: objective {kind!r} reads one text, not pairs")
    names = columns_of(recipe)
    labels = None
    if kind in ("classify", "regress", "tag"):
        label_kind = {"classify": "class", "regress": "number", "tag": "tags"}[kind]
        labels = LabelColumn(d.label, label_kind, tuple(d.labels) or None)  # type: ignore[arg-type]

    def read(files: Sequence[str], column: LabelColumn | None, cuts: Cuts | None = None) -> Dataset:
        say(f"reading {', '.join(files)}" + (f", and cutting each text in {cuts.n} ways" if cuts else ""))
        return tokenised_columns(rows_of_table(recipe, files), names, tokenizer, column, cuts=cuts)

    t = recipe.tokenizer
    cuts = Cuts(t.dropout, t.cuts, recipe.seed) if t.dropout else None
    train = read(d.train, labels, cuts)
    if labels is not None and train.label_names is not None:  # what is a class is what was one in training
        labels = LabelColumn(d.label, labels.kind, train.label_names)
    if train.labels is not None:
        found = train.labels
        if isinstance(found, Corpus):  # a tag for each word
            found = found.ids[found.ids != NO_TAG]
        refuse_one_answer(found, train.label_names, f"column {d.label!r} of {', '.join(d.train)}")
    valid = read(d.valid, labels) if d.valid else None
    objective = objective_for(recipe, tokenizer)
    kept, measured = np.arange(len(train)), np.arange(0 if valid is None else len(valid))
    if holds_out(d):
        valid = read(d.train, labels) if cuts else train  # what is measured with is cut as always
        rows, others = held_out(train.n_rows, recipe)
        kept, measured = train.examples_of(rows), valid.examples_of(others)
        if kind == "classify":
            check_classes(np.asarray(train.labels), kept, measured)
    source = _table_source(recipe, train, objective, tokenizer, kept, shuffle=True)
    valid_source = None
    if valid is not None:
        valid_source = _table_source(recipe, valid, objective, tokenizer, measured, shuffle=False)
    numbers = special_numbers(tokenizer)
    if kind == "classify" or kind == "tag":
        assert train.label_names is not None
        numbers |= {"n_classes": len(train.label_names), "labels": list(train.label_names)}
    prints = f"{train.fingerprint} {'' if valid is None else valid.fingerprint} {len(kept)}"
    dataset = TrainingData(objective, source, valid_source, prints, tokenizer, numbers)
    if kind == "translate" and valid is not None:
        dataset.sample_source = some_sources(recipe, valid, tokenizer, measured)
    if cuts:
        dataset.notes.append(f"each of {len(kept) // cuts.n:,} training pairs is cut in {cuts.n} ways")
    for use, data in {"training": train, "validation": None if holds_out(d) else valid}.items():
        if data is not None and data.skipped:
            dataset.notes.append(f"{data.skipped:,} {use} rows had an empty text and were left out")
    return dataset


def some_sources(
    recipe: Recipe, data: Dataset, tokenizer: Tokenizer, examples: Indices
) -> list[tuple[str, int | None]]:
    """A few sources, spread over the examples, in all directions by turns."""
    ways: list[tuple[str, int | None]] = [(a, tokenizer.tag_id(b)) for a, b in directions_of(recipe)]
    ways, found = ways or [(columns_of(recipe)[0], None)], []
    for i, example in enumerate(examples[:: max(1, len(examples) // 16)][:16].tolist()):
        name, tag = ways[i % len(ways)]
        found.append((tokenizer.decode(data.columns[name][example].tolist()), tag))
    return found


def _table_source(
    recipe: Recipe, data: Dataset, objective: Any, tokenizer: Tokenizer, examples: Indices, *, shuffle: bool
) -> Source:
    d, t = recipe.data, recipe.train
    kind = recipe.objective.kind
    common: dict[str, Any] = {
        "tokens": t.tokens, "seed": recipe.seed, "shuffle": shuffle, "multiple": t.accumulate, "most_rows": t.rows,
    }  # fmt: skip
    if kind == "translate":
        return Directions(recipe, data, objective, tokenizer, examples, common)
    if len(data.columns) == 1:
        (text,) = data.columns.values()
        check_lengths(d.seq_len, objective.extra)
        return Examples(
            {"text": text}, data.labels, extra={"text": objective.extra}, longest={"text": d.seq_len},
            examples=examples, **common,
        )  # fmt: skip
    first, second = data.columns.values()
    extra = objective.extra + int(objective.sep_id is not None)
    return Pairs(first, second, data.labels, extra=extra, longest=d.seq_len, examples=examples, **common)


class Directions:
    """Pairs in each wanted direction: an example is a pair and the way it is read, with the tag of its target.

    A pair with a side longer than seq_len is left out: a sentence that is cut short has another translation.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: Dataset,
        objective: Translation,
        tokenizer: Tokenizer,
        examples: Indices,
        common: dict[str, Any],
    ) -> None:
        d, names, self.cuts = recipe.data, columns_of(recipe), data.cuts
        ways = directions_of(recipe) or [(names[0], names[1])]
        self.ways = [(data.columns[a], data.columns[b]) for a, b in ways]
        self.tags = np.array([tokenizer.tag_id(b) for _, b in ways] if d.directions else [0])
        self.pair, self.way = np.tile(examples, len(ways)), np.repeat(np.arange(len(ways)), len(examples))
        self.extra = objective.extra
        source, target = (
            np.concatenate([way[side].lengths[examples] for way in self.ways]) + self.extra[name]
            for side, name in enumerate(("source", "target"))
        )
        fits = (source <= d.seq_len) & (target <= d.seq_len)
        self.too_long = int((~fits).sum())
        if not fits.any():
            raise InputError(f"every pair is longer than seq_len={d.seq_len}: allow more")
        self.pair, self.way = self.pair[fits], self.way[fits]
        self.buckets = Buckets([source[fits], target[fits]], widest=[d.seq_len, d.seq_len], **common)
        self.steps, self.n_examples = self.buckets.steps, self.buckets.n_examples

    def __call__(self, step: int) -> Batch:
        bucket, places = self.buckets.rows_of(step)
        there = places >= 0
        pair = np.where(there, self.pair[places], -1)
        way = np.where(there, self.way[places], -1)
        batch: Batch = {"example": pair, "tag": self.tags[np.maximum(way, 0)]}
        for side, name in enumerate(("source", "target")):
            width = bucket.widths[side] - self.extra[name]
            sides = [
                padded_batch(pairs[side], np.where(way == i, pair, -1), width) for i, pairs in enumerate(self.ways)
            ]
            batch[name] = np.sum([rows for rows, _ in sides], axis=0)  # a row is 0 in every way but its own
            batch[f"{name}_length"] = np.sum([lengths for _, lengths in sides], axis=0)
        return batch
