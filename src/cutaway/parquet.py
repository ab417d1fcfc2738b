"""Parquet files that others wrote, row by row: texts, numbers, and lists of them.

The package is told to leave texts in their dictionaries. A dictionary of one long text, to which a million rows point
with a bit each, would otherwise be a million long texts. What it says of single columns is not asked for: where that is
damaged, the package ends the process, which nothing can catch.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cutaway.errors import InputError, MissingExtra
from cutaway.files import damage

ROWS = 1024  # that are read at a time


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a file with these columns, or with all."""
    pyarrow = _package()
    with damage(path, "is damaged or not Parquet", InputError):
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            wanted = names if columns is None else list(columns)
            for name in wanted:
                if name not in names:
                    raise InputError(f"{path}: no column {name!r}; there are {', '.join(names) or 'none'}")
                kind = file.schema_arrow.field(names.index(name)).type
                if not _is_read(kind, pyarrow.types):
                    raise InputError(
                        f"{path}: the column {name!r} holds {kind}; read are texts, numbers, lists of them"
                    )
            texts = [field.name for field in file.schema_arrow if pyarrow.types.is_string(field.type)]
        with pyarrow.parquet.ParquetFile(path, read_dictionary=texts) as file:
            for batch in file.iter_batches(ROWS, columns=wanted):
                values = [_values(batch.column(name)) for name in wanted]
                yield from (dict(zip(wanted, row, strict=True)) for row in zip(*values, strict=True))


def text_columns(path: Path) -> list[str]:
    """The names of those columns that hold texts."""
    pyarrow = _package()
    with damage(path, "is damaged or not Parquet", InputError), pyarrow.parquet.ParquetFile(path) as file:
        return [field.name for field in file.schema_arrow if pyarrow.types.is_string(field.type)]


def _package() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None
    return pyarrow


def _is_read(kind: Any, types: Any) -> bool:
    if types.is_list(kind) or types.is_large_list(kind) or types.is_dictionary(kind):
        return _is_read(kind.value_type, types)
    plain = types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean, types.is_null
    return any(is_kind(kind) for is_kind in plain)


def _values(column: Any) -> list[Any]:
    """As Python has them; each text of a dictionary once."""
    if hasattr(column, "dictionary"):
        texts = column.dictionary.to_pylist()
        return [None if i is None else texts[i] for i in column.indices.to_pylist()]
    return column.to_pylist()
