"""Tables → rows: TSV, CSV, JSON lines, Parquet, and two parallel texts. All but Parquet also packed with gzip or xz.

    for row in read_table(Path("train.tsv.gz"), ["sentence", "label"]): row["sentence"]
    for row in read_parallel(Path("train.en"), Path("train.de")): row["source"], row["target"]

Every value is a text, or a list of texts (JSON lines and Parquet: words and their tags). Errors name the file and the
line.
"""

import csv
import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, get_args

from cutaway.data.text_files import LONGEST_LINE, file_size, read_lines
from cutaway.errors import CheckpointError, InputError
from cutaway.files import parse_json
from cutaway.parquet import read_parquet

Value = str | list[str]
Row = dict[str, Value]
Kind = Literal["tsv", "csv", "jsonl", "parquet"]

SUFFIXES: dict[str, Kind] = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


@dataclass
class Rows:
    """Rows that each `iter` reads anew; `skipped` counts those that the latest one left out."""

    paths: tuple[Path, ...]
    settings: dict[str, Any]  # how the files are read: with their contents, this decides what the rows are
    read: Callable[["Rows"], Iterator[tuple[int, Row]]] = field(repr=False)
    skipped: int = 0
    parts: list[tuple[int, "Rows"]] = field(
        default_factory=list, repr=False
    )  # of several tables: how many rows come before each

    def __iter__(self) -> Iterator[Row]:
        return (row for _, row in self.numbered())

    def numbered(self) -> Iterator[tuple[int, Row]]:
        """Each row with its line (of Parquet: its row), counted from 1."""
        self.skipped = 0
        return self.read(self)

    def where(self, number: int) -> str:
        """The place of a row, for errors."""
        if self.parts:
            before, part = self.parts[bisect_left(self.parts, number, key=lambda part: part[0]) - 1]
            return part.where(number - before)
        unit = "row" if self.settings["kind"] == "parquet" else "line"
        return f"{' and '.join(map(str, self.paths))}, {unit} {number}"


def read_table(
    path: Path,
    columns: Sequence[str] | None = None,
    *,
    header: Sequence[str] | None = None,
    kind: Kind | None = None,
    quoted: bool | None = None,
    further_fields: bool = False,
    skip_lines: int = 0,
) -> Rows:
    """The rows of a table with the wanted columns, or with all.

    `header` names the fields of a TSV or CSV file whose first line does not. Without a `kind`, the suffix decides. CSV
    is quoted and TSV is not (GLUE and Tatoeba have stray quotes), unless `quoted` says otherwise. `further_fields`
    ignores fields beyond the named ones; `skip_lines` skips lines at the beginning.
    """
    kind = kind or _kind_of(path)
    if kind not in get_args(Kind):
        raise InputError(f"kind={kind!r}: tables are {', '.join(get_args(Kind))}")
    if kind in ("jsonl", "parquet") and (header is not None or quoted is not None or further_fields or skip_lines):
        raise InputError(f"{path}: header, quoted, further_fields and skip_lines are for TSV and CSV, not for {kind}")
    settings = {
        "kind": kind,
        "columns": None if columns is None else list(columns),
        "header": None if header is None else list(header),
        "quoted": kind == "csv" if quoted is None else quoted,
        "further_fields": further_fields,
        "skip_lines": skip_lines,
    }
    readers = {"tsv": _separated, "csv": _separated, "jsonl": _json_lines, "parquet": _parquet}
    return Rows((path,), settings, readers[kind])


def read_parallel(source: Path, target: Path, *, names: tuple[str, str] = ("source", "target")) -> Rows:
    """The pairs of lines of two texts, which must have the same number of lines.

    Pairs with an empty side are left out and counted.
    """
    settings = {"kind": "parallel", "names": list(names), "skip_empty": True}
    return Rows((source, target), settings, _pairs)


def several(tables: Sequence[Rows]) -> Rows:
    """The rows of some tables, one after the other."""

    def read(rows: Rows) -> Iterator[tuple[int, Row]]:
        rows.parts = []
        number = 0
        for table in tables:
            rows.parts.append((number, table))
            before, skipped = number, rows.skipped
            for local, row in table.numbered():
                number = before + local
                rows.skipped = skipped + table.skipped
                yield number, row
            rows.skipped = skipped + table.skipped

    settings = {"kind": "several", "tables": [table.settings for table in tables]}
    return Rows(tuple(path for table in tables for path in table.paths), settings, read)


def text_of(value: Value) -> str:
    """A value as one text; words are joined with spaces."""
    return value if isinstance(value, str) else " ".join(value)


def tagged_words(value: Value) -> list[str]:
    """A value as words; a text is split at its white space."""
    return value.split() if isinstance(value, str) else value


def _kind_of(path: Path) -> Kind:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".xz"):
        suffixes.pop()
    if not suffixes or suffixes[-1] not in SUFFIXES:
        raise InputError(f"{path}: the name does not say what kind of table this is; known are {', '.join(SUFFIXES)}")
    return SUFFIXES[suffixes[-1]]


def _pairs(rows: Rows) -> Iterator[tuple[int, Row]]:
    sides = [read_lines(path) for path in rows.paths]
    for number, pair in enumerate(zip_longest(*sides), 1):
        if None in pair:
            short = pair.index(None)
            counts = [number + sum(1 for _ in side) for side in sides]
            counts[short] = number - 1
            (a, b), (m, n) = rows.paths, counts
            raise InputError(f"{a} has {m:,} lines, {b} has {n:,}: lines of parallel texts must belong together")
        if any(not line or line.isspace() for line in pair):
            rows.skipped += 1
        else:
            yield number, dict(zip(rows.settings["names"], pair, strict=True))


def _separated(rows: Rows) -> Iterator[tuple[int, Row]]:
    (path,), settings = rows.paths, rows.settings
    separator = "," if settings["kind"] == "csv" else "\t"
    lines = read_lines(path)
    skip = settings["skip_lines"]
    for _ in range(skip):
        next(lines, None)
    fields = _quoted(path, lines, separator, skip) if settings["quoted"] else _unquoted(lines, separator, skip)
    names = settings["header"]
    if names is None:
        number, names = next(fields, (0, []))
        if len(set(names)) < len(names):
            raise InputError(f"{path}, line {number}: two columns have the same name: {', '.join(names)}")
    wanted = _wanted(settings["columns"], names, str(path))
    places = [(name, names.index(name)) for name in wanted]
    for number, values in fields:
        if len(values) == len(names) or (settings["further_fields"] and len(values) > len(names)):
            yield number, {name: values[place] for name, place in places}
        else:
            raise InputError(
                f"{path}, line {number}: {len(values)} fields where {len(names)} are named ({', '.join(names)})"
            )


def _unquoted(lines: Iterator[str], separator: str, skipped: int) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, skipped + 1):
        yield number, line.split(separator)


def _quoted(path: Path, lines: Iterator[str], separator: str, skipped: int) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(LONGEST_LINE)  # of the whole process, 128 KiB by default; a line may be as long
    reader = csv.reader((line + "\n" for line in lines), delimiter=separator, strict=True)
    number = skipped + 1
    try:
        for values in reader:
            yield number, values
            number = skipped + reader.line_num + 1
    except csv.Error as error:
        long = "field larger than" in str(error)
        said = f"a field of more than {LONGEST_LINE:,} characters; is its quote never closed" if long else str(error)
        raise InputError(
            f"{path}, line {number}: {said}; if quotes are ordinary characters here, set quoted=False"
        ) from None


def _json_lines(rows: Rows) -> Iterator[tuple[int, Row]]:
    (path,) = rows.paths
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}, line {number}"
        try:
            value = parse_json(line.encode(), where)
        except CheckpointError as error:
            raise InputError(str(error)) from None
        wanted = _wanted(rows.settings["columns"], list(value), where)
        yield number, {name: _texts(value[name], f"{where}, {name}") for name in wanted}


def _parquet(rows: Rows) -> Iterator[tuple[int, Row]]:
    (path,) = rows.paths
    file_size(path)
    for number, row in enumerate(read_parquet(path, rows.settings["columns"]), 1):
        yield number, {name: _texts(value, f"{path}, row {number}, {name}") for name, value in row.items()}


def _wanted(columns: list[str] | None, there: list[str], where: str) -> list[str]:
    for name in columns or []:
        if name not in there:
            raise InputError(f"{where}: no column {name!r}; there are {', '.join(there) or 'none'}")
    return there if columns is None else columns


def _texts(value: Any, where: str) -> Value:
    """A value as text: numbers as they are written, lists item by item."""
    match value:
        case str():
            return value
        case bool() | int() | float():
            return json.dumps(value)
        case list():
            texts = [_texts(item, where) for item in value]
            if all(isinstance(text, str) for text in texts):
                return texts  # type: ignore[return-value]
    kind = "null" if value is None else type(value).__name__
    raise InputError(f"{where}: a {kind} where a text, a number or a list of them is expected")
