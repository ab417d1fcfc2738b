"""Tables as examples: one corpus for each column of text, and the labels beside them.

rows = read_parallel(Path("train.en"), Path("train.de"))
pairs = tokenised_columns(rows, ["source", "target"], tokenizer)
pairs.columns["target"][0]           # the ids of the first target, with nothing around them

rows = read_table(Path("train.tsv"), ["sentence", "label"])
examples = tokenised_columns(rows, ["sentence"], tokenizer, LabelColumn("label"))
examples.labels, examples.label_names
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.data.cache import Array, cached, facts
from cutaway.data.corpus import (
    Corpus,
    SequenceWriter,
    batched,
    digest,
    encoded,
    id_dtype,
    open_corpus,
)
from cutaway.data.labels import LabelColumn, LabelWriter, open_labels
from cutaway.data.table_files import Row, Rows, Value, tagged_words, text_of
from cutaway.errors import InputError
from cutaway.tokens.bpe_dropout import BPEDropout
from cutaway.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Cuts:
    """BPE-dropout (`tokens.bpe_dropout`): each row becomes `n` examples, with different segmentations of its texts."""

    dropout: float
    n: int
    seed: int


@dataclass(frozen=True, eq=False)
class Dataset:
    """The examples of a table: for each, a sequence in every column, and a label if there are any."""

    columns: dict[str, Corpus]
    labels: Array | Corpus | None
    label_names: tuple[str, ...] | None
    fingerprint: str
    skipped: int  # rows that were left out because a text is empty
    tokenless: tuple[
        int, ...
    ] = ()  # those with text but without a token: their places among the rows that are not blank
    cuts: int = 1  # examples of each row, one after another

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def n_rows(self) -> int:
        """The number of rows without a blank text, which is the same for every tokenizer."""
        return len(self) // self.cuts + len(self.tokenless)

    def examples_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The examples that were made from these rows."""
        found = np.flatnonzero(np.isin(np.delete(np.arange(self.n_rows), self.tokenless), rows))
        return (found[:, None] * self.cuts + np.arange(self.cuts)).ravel()


@dataclass(frozen=True, eq=False)
class Segmentations:
    """Several segmentations of a text, one after another."""

    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)


def _with_dropout(dropout: BPEDropout, texts: list[str], first: int) -> Iterator[Segmentations]:
    """The segmentations of each text; `first` is the number of the first text."""
    ids, lengths = dropout.cut(texts, first)
    of_texts = lengths.reshape(len(texts), dropout.cuts)
    ends = np.cumsum(of_texts.sum(axis=1))
    return map(Segmentations, np.split(ids, ends[:-1]), of_texts)


def is_blank(row: Row, names: Iterable[str]) -> bool:
    """Whether one of these columns has no text."""
    return any(not text_of(row[name]).strip() for name in names)


def tokenised_columns(
    rows: Rows,
    names: Sequence[str],
    tokenizer: Tokenizer,
    labels: LabelColumn | None = None,
    *,
    cuts: Cuts | None = None,
    cache: Path | None = None,
) -> Dataset:
    """The named columns of text as tokens, with no special ones added, and the labels.

    A row in which a text is empty, or has no token, is left out and counted.
    With `cuts` each row becomes several examples, one after another.
    """
    if not names or len(set(names)) < len(names):
        raise InputError(f"names={list(names)}: give at least one column of text, and each only once")
    if cuts is not None and labels is not None:
        raise InputError("texts with labels have one segmentation: leave out `cuts`")
    settings = {
        "kind": "rows",
        "rows": rows.settings,
        "names": list(names),
        "labels": None
        if labels is None
        else {**asdict(labels), "words": None},  # None and True: as always, for the key
        "skip_empty": True,
        "tokenizer": digest(tokenizer),
    }
    settings |= {"cuts": asdict(cuts)} if cuts else {}

    def build(folder: Path) -> dict[str, Any]:
        with _Builder(folder, rows, names, tokenizer, labels, cuts) as builder:
            for batch in batched(rows.numbered(), lambda item: sum(len(item[1].get(name, "")) for name in names)):
                builder.add(batch)
            return builder.finish()

    entry = cached(rows.paths, settings, build, cache)
    said = facts(entry)
    columns = {name: open_corpus(entry, f"column{i}", said["columns"][i]) for i, name in enumerate(names)}
    found, label_names = (None, None) if labels is None else open_labels(entry, said["labels"])
    n_cuts = cuts.n if cuts else 1
    return Dataset(columns, found, label_names, entry.name, said["skipped"], tuple(said["tokenless"]), n_cuts)


class _Builder(ExitStack):
    """Tokenises batches of rows and writes them."""

    def __init__(
        self,
        folder: Path,
        rows: Rows,
        names: Sequence[str],
        tokenizer: Tokenizer,
        labels: LabelColumn | None,
        cuts: Cuts | None,
    ) -> None:
        super().__init__()
        self.rows, self.names, self.tokenizer, self.labels = rows, names, tokenizer, labels
        self.dropout = BPEDropout(tokenizer, cuts.dropout, cuts.n, cuts.seed) if cuts else None
        self.skipped = self.n_rows = self.n_read = 0
        self.tokenless: list[int] = []
        self.tagged = names[0] if labels is not None and labels.kind == "tags" else None
        dtype = id_dtype(tokenizer)
        self.writers = [self.enter_context(SequenceWriter(folder, f"column{i}", dtype)) for i in range(len(names))]
        self.label_writer = None if labels is None else self.enter_context(LabelWriter(folder, labels))

    def add(self, batch: list[tuple[int, Row]]) -> None:
        """Write some rows."""
        texts = [self._texts(name, batch) for name in self.names]
        ids = [list(self._encoded(i, column)) for i, column in enumerate(texts)]
        self.n_read += len(batch)
        for at, (number, row) in enumerate(batch):
            empty = [not len(column[at]) or is_blank(row, [name]) for name, column in zip(self.names, ids, strict=True)]
            blank = is_blank(row, self.names)
            if not any(empty):
                self._write(number, row, [column[at] for column in texts], [column[at] for column in ids])
            else:
                self.skipped += 1
                self.tokenless += [] if blank else [self.n_rows]
            self.n_rows += not blank

    def _texts(self, name: str, batch: list[tuple[int, Row]]) -> list[str]:
        """A column of text; words are joined with spaces."""
        values = [self._value(number, row, name) for number, row in batch]
        return [text_of(tagged_words(value) if name == self.tagged else value) for value in values]

    def _encoded(self, column: int, texts: list[str]) -> Iterable[list[int] | Segmentations]:
        if self.dropout is None:
            return encoded(self.tokenizer, texts)
        return _with_dropout(self.dropout, texts, first=column << 48 | self.n_read)  # no two texts have one number

    def _write(self, number: int, row: Row, texts: list[str], ids: list[list[int] | Segmentations]) -> None:
        if self.labels is not None and self.label_writer is not None:
            value, where = self._value(number, row, self.labels.column), self.rows.where(number)
            if self.tagged is None:
                self.label_writer.add(value, where)
            else:
                places = self.tokenizer.encode_full(texts[self.names.index(self.tagged)], special=False).offsets
                self.label_writer.add_tags(tagged_words(value), tagged_words(row[self.tagged]), places, where)
        for writer, of_column, text in zip(self.writers, ids, texts, strict=True):
            if isinstance(of_column, Segmentations):
                writer.add_several(of_column.ids, of_column.lengths, text)
                continue
            writer.add(of_column, text)
            writer.end()

    def _value(self, number: int, row: Row, name: str) -> Value:
        if name not in row:
            raise InputError(f"{self.rows.where(number)}: no column {name!r}; there are {', '.join(row)}")
        return row[name]

    def finish(self) -> dict[str, Any]:
        """What is in the files."""
        self.skipped += self.rows.skipped
        if not self.writers[0].n_sequences:
            files = " and ".join(map(str, self.rows.paths))
            raise InputError(f"{files}: no rows ({self.skipped:,} left out because a text was empty)")
        self.close()
        said = {
            "columns": [writer.facts() for writer in self.writers],
            "skipped": self.skipped,
            "tokenless": self.tokenless,
        }
        return said if self.label_writer is None else {**said, "labels": self.label_writer.finish()}
