"""Minimal pairs from files: tables with a good and a bad sentence in each row, as BLiMP's are.

    read_pairs([Path("blimp/data")])        a folder with tables or BLiMP.zip; tables; BLiMP.zip itself

A table is known by its columns `sentence_good` and `sentence_bad`, or others that are named. The columns `field`,
`linguistics_term` and `UID` say what a pair is an example of; of several tables without a `UID`, each is a kind.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path, PurePosixPath

from cutaway.data.table_examples import is_blank
from cutaway.data.table_files import SUFFIXES, read_table, text_of
from cutaway.data.text_files import file_size
from cutaway.data.zip_archives import is_zip, open_member, open_zip, read_member
from cutaway.errors import InputError
from cutaway.evaluation.minimal_pairs import Pair
from cutaway.files import MEGABYTE

GOOD, BAD = "sentence_good", "sentence_bad"
LEVELS = {"field": "field", "term": "linguistics_term", "kind": "UID"}
# BLiMP spells one field in two ways, and the paper counts these two kinds to the structure of arguments
OTHER_NAMES = {"syntax/semantics": "syntax_semantics", "s-selection": "argument_structure"}
# Bytes of an archive's tables; what is small may be packed as tightly as it likes.
LARGEST, MOST_TIMES, SMALL = 1 << 30, 50, 16 * MEGABYTE


def read_pairs(
    paths: Sequence[Path],
    good: str | None = None,
    bad: str | None = None,
    *,
    header: Sequence[str] | None = None,
    limit: int | None = None,
) -> tuple[list[Pair], int] | None:
    """The first `limit` pairs of each table, and how many rows had an empty side; None where no table has pairs, unless
    their columns were named."""
    named = good is not None or bad is not None
    columns = [good or GOOD, bad or BAD]
    with ExitStack() as stack:
        tables = [table for path in paths for table in _tables(path, columns, header, stack)]
        if not named and not any(_has(table, columns, header) for table, _ in tables):
            return None
        if not tables:
            raise InputError(f"{', '.join(map(str, paths))}: no table; known are {', '.join(SUFFIXES)}")
        pairs: list[Pair] = []
        skipped = 0
        for table, name in tables:
            alone = {} if len(tables) == 1 else {"kind": _stem(table.name)}
            try:
                new, blank = _pairs(table, columns, header, alone, limit)
            except InputError as error:  # of an archive, the table was unpacked to somewhere
                raise InputError(str(error).replace(str(table), name)) from None
            pairs, skipped = pairs + new, skipped + blank
    if not pairs:
        raise InputError(f"{', '.join(map(str, paths))}: no pair of sentences")
    return pairs, skipped


def _pairs(
    table: Path, columns: list[str], header: Sequence[str] | None, alone: dict[str, str], limit: int | None
) -> tuple[list[Pair], int]:
    levels = {level: column for level, column in LEVELS.items() if _has(table, [column], header)}
    rows = read_table(table, [*columns, *levels.values()], header=header)
    some = list(islice(rows, limit))
    kept = [row for row in some if not is_blank(row, columns)]
    good, bad = columns

    def of(row: dict[str, str | list[str]]) -> dict[str, str]:
        said = {level: text_of(row[column]) for level, column in levels.items()}
        return {**alone, **{level: OTHER_NAMES.get(name, name) for level, name in said.items()}}

    return [Pair(text_of(row[good]), text_of(row[bad]), of(row)) for row in kept], len(some) - len(kept)


def _has(table: Path, columns: list[str], header: Sequence[str] | None) -> bool:
    """Whether the first row has these columns; a file that cannot be read has none."""
    try:
        return next(iter(read_table(table, columns, header=header)), None) is not None
    except InputError:
        return False


def _tables(
    path: Path, columns: list[str], header: Sequence[str] | None, stack: ExitStack
) -> Iterator[tuple[Path, str]]:
    """A table; those with pairs in a folder; or those in an archive, unpacked until the stack ends. With names for
    errors."""
    if path.is_dir():
        yield from _beside_others(path, columns, header, stack)
    elif is_zip(path):
        yield from _unpacked(path, Path(stack.enter_context(tempfile.TemporaryDirectory())))
    elif _is_table(path.name):
        yield path, str(path)


def _beside_others(
    folder: Path, columns: list[str], header: Sequence[str] | None, stack: ExitStack
) -> Iterator[tuple[Path, str]]:
    """The tables with pairs below a folder, whatever else lies there; where there is none, those in its archives."""
    inside = sorted(each for each in folder.rglob("*") if each.is_file())
    found = [(each, str(each)) for each in inside if _is_table(each.name)]
    pairs = [table for table in found if _has(table[0], columns, header)]
    if not pairs:
        archives = [each for each in inside if each.suffix.lower() == ".zip"]
        found = [table for each in archives for table in _tables(each, columns, header, stack)]
        pairs = [table for table in found if _has(table[0], columns, header)]
    if not pairs:
        raise InputError(
            f"{folder} holds no minimal pairs: tables ({', '.join(SUFFIXES)}) with the columns {' and '.join(columns)} "
            "are needed, or BLiMP.zip as it is published"
        )
    yield from pairs


def _unpacked(path: Path, folder: Path) -> Iterator[tuple[Path, str]]:
    with open_zip(path) as (archive, members):
        tables = sorted(name for name in members if _is_table(PurePosixPath(name).name))
        most = min(LARGEST, max(SMALL, MOST_TIMES * file_size(path)))
        if sum(members[name].file_size for name in tables) > most:
            raise InputError(f"{path}: its tables have more than {most:,} bytes; unpack it, and give the folder")
        for number, name in enumerate(tables):
            inside = folder / str(number)  # two folders of an archive may hold tables of one name
            inside.mkdir()
            table, where = inside / PurePosixPath(name).name[-60:], f"{path}, {name}"  # a disk takes 255 bytes
            with open_member(archive, members[name], where) as member, table.open("wb") as file:
                while data := read_member(member, MEGABYTE, where):
                    file.write(data)
            yield table, where


def _is_table(name: str) -> bool:
    """Judged by its name; hidden files are no tables (a Mac puts a ._ file beside each)."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes if suffix.lower() not in (".gz", ".xz")]
    return not name.startswith(".") and bool(suffixes) and suffixes[-1] in SUFFIXES


def _stem(name: str) -> str:
    """The name of a table without its suffixes."""
    path = Path(name)
    while path.suffix.lower() in (".gz", ".xz", *SUFFIXES):
        path = path.with_suffix("")
    return path.name
