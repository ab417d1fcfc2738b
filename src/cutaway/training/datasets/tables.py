"""Tables and parallel texts: rows with one or two texts and perhaps a label, or pairs to translate."""

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any

import numpy as np

from cutaway.data.batches import Examples, Pairs, Source
from cutaway.data.corpus import Corpus
from cutaway.data.labels import NO_TAG, LabelColumn
from cutaway.data.order import Indices
from cutaway.data.table_examples import Cuts, Dataset, is_blank, tokenised_columns
from cutaway.data.table_files import Rows, read_parallel, read_table, several, text_of
from cutaway.errors import ConfigError
from cutaway.tokens import Tokenizer
from cutaway.training.datasets.choose_tokenizer import choose_tokenizer, special_ids
from cutaway.training.datasets.held_out import (
    check_classes,
    check_length,
    held_out,
    holds_out,
    paths_of,
    refuse_one_label,
)
from cutaway.training.datasets.pair_batches import PairBatches, source_columns
from cutaway.training.datasets.training_data import Note, TrainingData
from cutaway.training.recipe import DataPart, Recipe, directions_of
from cutaway.training.tasks import task_of


class Tables:
    """The tables, or parallel texts, of a recipe."""

    def __init__(self, recipe: Recipe, note: Note) -> None:
        self.recipe, self.note, self.data, self.task = recipe, note, recipe.data, task_of(recipe)
        self._check()
        self.columns = self._text_columns()
        d, t = recipe.data, recipe.tokenizer
        self.labels = LabelColumn(d.label, self.task.labels, tuple(d.labels) or None) if self.task.labels else None
        self.cuts = Cuts(t.dropout, t.cuts, recipe.seed) if t.dropout else None

    def prepare(self, start: Tokenizer | None) -> TrainingData:
        """`start` is the starting model's tokenizer."""
        for names in filter(None, (self.data.train, self.data.valid)):
            next(iter(self.rows(names)), None)  # a missing column is found before a tokenizer is trained
        tokenizer = choose_tokenizer(self.recipe, start, self.training_texts, self.note)
        train = self._read(self.data.train, tokenizer, self.labels, self.cuts)
        self._check_labels(train)
        valid, kept, measured = self._split(train, tokenizer)
        objective = self.task.objective(self.recipe, tokenizer)
        settings = special_ids(tokenizer)
        if self.task.labels in ("class", "tags"):
            assert train.label_names is not None
            settings |= {"n_classes": len(train.label_names), "labels": list(train.label_names)}
        dataset = TrainingData(
            task=self.task,
            objective=objective,
            train=self._batches(train, objective, tokenizer, kept, shuffle=True),
            valid=None if valid is None else self._batches(valid, objective, tokenizer, measured, shuffle=False),
            fingerprint=f"{train.fingerprint} {'' if valid is None else valid.fingerprint} {len(kept)}",
            tokenizer=tokenizer,
            model_settings=settings,
        )
        if self.task.columns == "pair" and valid is not None:
            dataset.sample_sources = self._sample_sources(valid, tokenizer, measured)
        if self.cuts:
            n = self.cuts.n
            dataset.notes.append(f"each of {len(kept) // n:,} training pairs is segmented in {n} ways")
        for use, examples in {"training": train, "validation": None if holds_out(self.data) else valid}.items():
            if examples is not None and examples.skipped:
                dataset.notes.append(f"{examples.skipped:,} {use} rows had an empty text and were left out")
        return dataset

    def rows(self, names: Sequence[str]) -> Rows:
        """The rows of all these files, one after another."""
        d, paths = self.data, paths_of(self.recipe, names)
        if d.format == "parallel":
            if len(paths) % 2:
                raise ConfigError(f"parallel files come in pairs, and there are {len(paths)}")
            sides = tuple(d.header) if len(d.header) == 2 else (d.source, d.target)
            if missing := sorted(set(self.columns) - set(sides)):
                raise ConfigError(f"parallel files have no side {missing[0]!r}: data.header={list(d.header)}")
            tables = [
                read_parallel(a, b, names=sides)  # type: ignore[arg-type]
                for a, b in zip(paths[::2], paths[1::2], strict=True)
            ]
        else:
            wanted = self.columns + ([d.label] if self.labels else [])
            tables = [read_table(path, wanted, **table_format(d)) for path in paths]
        return tables[0] if len(tables) == 1 else several(tables)

    def training_texts(self) -> Iterator[str]:
        """The texts of the rows that are not held out: what a new tokenizer is trained on."""
        rows = iter(self.rows(self.data.train))
        if holds_out(self.data):
            filled = [not is_blank(row, self.columns) for row in self.rows(self.data.train)]
            kept = np.zeros(sum(filled), dtype=bool)
            kept[held_out(len(kept), self.recipe)[0]] = True
            rows = compress((row for row in rows if not is_blank(row, self.columns)), kept)
        return (text_of(row[name]) for row in rows for name in self.columns)

    def _check(self) -> None:
        d, kind = self.data, self.recipe.objective.kind
        if "table" not in self.task.reads:
            raise ConfigError(f"objective {kind!r} reads running text, not tables: data.format = 'text'")
        if d.second is not None and self.task.columns == "text":
            raise ConfigError(f"data.second={d.second!r}: objective {kind!r} reads one text, not pairs")

    def _text_columns(self) -> list[str]:
        """The columns of text that are read, as the files call them."""
        d = self.data
        if self.task.columns != "pair":
            return [d.text] if d.second is None else [d.text, d.second]
        if d.directions:
            return sorted({side for way in directions_of(self.recipe) for side in way})
        return list(d.header[:2]) if d.format == "parallel" and d.header else [d.source, d.target]

    def _read(
        self, names: Sequence[str], tokenizer: Tokenizer, labels: LabelColumn | None, cuts: Cuts | None = None
    ) -> Dataset:
        self.note(f"reading {', '.join(names)}" + (f", segmenting each text in {cuts.n} ways" if cuts else ""))
        return tokenised_columns(self.rows(names), self.columns, tokenizer, labels, cuts=cuts)

    def _split(self, train: Dataset, tokenizer: Tokenizer) -> tuple[Dataset | None, Indices, Indices]:
        """The examples to validate with, and which of both are used."""
        d, labels = self.data, self.labels
        if labels is not None and train.label_names is not None:  # the classes are those of the training examples
            labels = LabelColumn(d.label, labels.kind, train.label_names)
        if not holds_out(d):
            valid = self._read(d.valid, tokenizer, labels) if d.valid else None
            return valid, np.arange(len(train)), np.arange(0 if valid is None else len(valid))
        valid = self._read(d.train, tokenizer, labels) if self.cuts else train  # validated with the usual segmentation
        rows, others = held_out(train.n_rows, self.recipe)
        kept, measured = train.examples_of(rows), valid.examples_of(others)
        if self.task.labels == "class":
            check_classes(np.asarray(train.labels), kept, measured)
        return valid, kept, measured

    def _check_labels(self, train: Dataset) -> None:
        if train.labels is None:
            return
        found = train.labels
        if isinstance(found, Corpus):  # a tag for each word
            found = found.ids[found.ids != NO_TAG]
        refuse_one_label(found, train.label_names, f"column {self.data.label!r} of {', '.join(self.data.train)}")

    def _sample_sources(self, data: Dataset, tokenizer: Tokenizer, examples: Indices) -> list[tuple[str, int | None]]:
        """A few sources, spread over the examples, from all directions in turn."""
        ways, found = source_columns(self.recipe, tokenizer), []
        for i, example in enumerate(examples[:: max(1, len(examples) // 16)][:16].tolist()):
            source, _, tag = ways[i % len(ways)]
            found.append((tokenizer.decode(data.columns[source][example].tolist()), tag))
        return found

    def _batches(
        self, data: Dataset, objective: Any, tokenizer: Tokenizer, examples: Indices, *, shuffle: bool
    ) -> Source:
        t, seq_len = self.recipe.train, self.data.seq_len
        how: dict[str, Any] = {
            "tokens": t.tokens, "seed": self.recipe.seed, "shuffle": shuffle, "multiple": t.accumulate,
            "most_rows": t.rows, "examples": examples,
        }  # fmt: skip
        if self.task.columns == "pair":
            return PairBatches(self.recipe, data, objective, tokenizer, **how)
        if len(data.columns) == 1:
            (text,) = data.columns.values()
            check_length(seq_len, objective.extra)
            extra, longest = {"text": objective.extra}, {"text": seq_len}
            return Examples({"text": text}, data.labels, extra=extra, longest=longest, **how)
        first, second = data.columns.values()
        extra_of_pair = objective.extra + int(objective.sep_id is not None)
        return Pairs(first, second, data.labels, extra=extra_of_pair, longest=seq_len, **how)


def table_format(d: DataPart) -> dict[str, Any]:
    """How a table is read, if its suffix does not tell."""
    return {
        "kind": d.table, "header": d.header or None, "quoted": d.quoted, "further_fields": d.further_fields,
        "skip_lines": d.skip_lines,
    }  # fmt: skip
