"""Tables as examples: one corpus for each column of text, and the labels beside them.

rows = read_parallel(Path("train.en"), Path("train.de"))
pairs = tokenised_columns(rows, ["source", "target"], tokenizer)
pairs.columns["target"][0]           # the ids of the first target, with nothing around them

rows = read_table(Path("train.tsv"), ["sentence", "label"])
examples = tokenised_columns(rows, ["sentence"], tokenizer, Labels("label"))
examples.labels, examples.label_names
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutaway.data.cache import Array, cached, facts
from cutaway.data.corpus import Corpus, Report, SequenceWriter, batched, digest, encoded, id_dtype, open_corpus
from cutaway.data.labels import Labels, LabelWriter, open_labels
from cutaway.data.tables import Row, Rows, Value
from cutaway.data.text import file_size
from cutaway.errors import InputError
from cutaway.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples: the same number of sequences in each column, and as many labels."""

    columns: dict[str, Corpus]
    labels: Array | Corpus | None
    label_names: tuple[str, ...] | None
    fingerprint: str
    skipped: int  # rows that were left out because a text was empty

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def tokenised_columns(
    rows: Rows,
    names: Sequence[str],
    tokenizer: Tokenizer,
    labels: Labels | None = None,
    *,
    skip_empty: bool = True,
    cache: Path | None = None,
    report: Report | None = None,
) -> Dataset:
    """The named columns of text as tokens, with no special ones added, and the labels.

    A row in which a text is empty, or has no token, is left out and counted; with `skip_empty=False` it is an error.
    `report` is told now and then how many bytes of how many have been read.
    """
    if not names or len(set(names)) < len(names):
        raise InputError(f"names={list(names)}: columns of text are needed, each once")
    if labels is not None and labels.words is not None and labels.words not in names:
        raise InputError(f"words={labels.words!r} is none of the columns of text: {', '.join(names)}")
    settings = {
        "kind": "columns",
        "rows": rows.settings,
        "names": list(names),
        "labels": None if labels is None else asdict(labels),
        "skip_empty": skip_empty,
        "tokenizer": digest(tokenizer),
    }

    def build(folder: Path) -> dict[str, Any]:
        total = sum(file_size(path) for path in rows.paths)
        with _Builder(folder, rows, names, tokenizer, labels, skip_empty) as builder:
            for batch in batched(rows.numbered(), lambda item: sum(len(item[1].get(name, "")) for name in names)):
                builder.add(batch)
                if report is not None:
                    report(rows.done_bytes, total)
            return builder.finish()

    entry = cached(rows.paths, settings, build, cache)
    said = facts(entry)
    columns = {name: open_corpus(entry, f"column{i}", said["columns"][i]) for i, name in enumerate(names)}
    if labels is None:
        return Dataset(columns, None, None, entry.name, said["skipped"])
    found, label_names = open_labels(entry, said["labels"])
    return Dataset(columns, found, label_names, entry.name, said["skipped"])


class _Builder(ExitStack):
    """Cuts batches of rows into tokens and writes them down."""

    def __init__(
        self,
        folder: Path,
        rows: Rows,
        names: Sequence[str],
        tokenizer: Tokenizer,
        labels: Labels | None,
        skip_empty: bool,
    ) -> None:
        super().__init__()
        self.rows, self.names, self.tokenizer, self.labels = rows, names, tokenizer, labels
        self.skip_empty, self.skipped = skip_empty, 0
        self.tagged = (labels.words or names[0]) if labels is not None and labels.kind == "tags" else None
        dtype = id_dtype(tokenizer)
        self.writers = [self.enter_context(SequenceWriter(folder, f"column{i}", dtype)) for i in range(len(names))]
        self.label_writer = None if labels is None else self.enter_context(LabelWriter(folder, labels))

    def add(self, batch: list[tuple[int, Row]]) -> None:
        """Write some rows."""
        texts = [self._texts(name, batch) for name in self.names]
        ids = [list(encoded(self.tokenizer, column)) for column in texts]
        for at, (number, row) in enumerate(batch):
            empty = [not ids[i][at] or texts[i][at].isspace() for i in range(len(self.names))]
            if not any(empty):
                self._write(number, row, [column[at] for column in texts], [column[at] for column in ids])
            elif self.skip_empty:
                self.skipped += 1
            else:
                raise InputError(f"{self.rows.where(number)}: the {self.names[empty.index(True)]} is empty")

    def _texts(self, name: str, batch: list[tuple[int, Row]]) -> list[str]:
        """A column of text; words are joined with spaces, and cut as any other text is."""
        values = [self._value(number, row, name) for number, row in batch]
        if name == self.tagged:
            return [" ".join(_words(value)) for value in values]
        return [value if isinstance(value, str) else " ".join(value) for value in values]

    def _write(self, number: int, row: Row, texts: list[str], ids: list[list[int]]) -> None:
        if self.labels is not None and self.label_writer is not None:
            value, where = self._value(number, row, self.labels.column), self.rows.where(number)
            if self.tagged is None:
                self.label_writer.add(value, where)
            else:
                places = self.tokenizer.encode_full(texts[self.names.index(self.tagged)], special=False).offsets
                self.label_writer.add_tags(_words(value), _words(row[self.tagged]), places, where)
        for writer, of_column, text in zip(self.writers, ids, texts, strict=True):
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
        said = {"columns": [writer.facts() for writer in self.writers], "skipped": self.skipped}
        return said if self.label_writer is None else {**said, "labels": self.label_writer.finish()}


def _words(value: Value) -> list[str]:
    return value if isinstance(value, list) else value.split()
