"""Word vectors in the forms in which they are published: a word, and its numbers.

    text       the 0.418 0.24968 …         GloVe (Pennington et al. 2014); behind a line «400000 50» word2vec and .vec
    binary     400000 50\\nthe ····…        word2vec (Mikolov et al. 2013): numbers of 4 bytes
    array      vectors.npy, and beside it the words: a .parquet with one column (needs pyarrow), or a .txt, one a line

Text may be packed with gzip or xz. The order of the words is kept: published files have the most frequent first.
"""

import re
from collections.abc import Iterator
from io import BufferedReader
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Float

from cutaway.errors import CheckpointError, InputError
from cutaway.files import MEGABYTE, read_bytes, regular_size
from cutaway.folders import finish_replacing
from cutaway.npy import open_npy
from cutaway.parquet import read_parquet, text_columns
from cutaway.unpacked import DAMAGED, open_unpacked

HEAD = re.compile(rb"^(\d+) (\d+) ?\r?$")
LONGEST = 1 << 20  # bytes of a line
MOST_NUMBERS = 1 << 33  # of a matrix: 32 GB
MOST_OF_WORDS = 1024 * MEGABYTE
Matrix = Float[np.ndarray, "word d"]


def is_word_vectors(path: Path) -> bool:
    """Whether a path holds word vectors and no model: by its name and its first line."""
    finish_replacing(path)
    if path.is_dir():
        return not (path / "config.json").exists() and len(list(path.glob("*.npy"))) == 1
    if not path.is_file():
        return False
    return path.suffix == ".npy" or _first_line(path) is not None


def read_word_vectors(path: Path, most: int | None = None) -> tuple[list[str], Matrix]:
    """The first `most` words and their vectors."""
    finish_replacing(path)
    if path.is_dir():
        arrays = sorted(path.glob("*.npy"))
        if len(arrays) != 1:
            raise CheckpointError(f"{path} has {len(arrays)} .npy files: name the one with the vectors")
        (path,) = arrays
    regular_size(path)
    if path.suffix == ".npy":
        return _array(path, most)
    first = _first_line(path)
    if first is None:
        raise CheckpointError(
            f"{path}: its first line is neither a word with its numbers nor «words numbers»; known are GloVe's and "
            "word2vec's text, word2vec's binary form, and .npy with the words beside it"
        )
    try:
        with open_unpacked(path) as (file, _):
            words, rows = _read(path, file, first, most)
    except DAMAGED as error:
        raise CheckpointError(f"{path} is damaged or cut short: {error}") from None
    if not words:
        raise CheckpointError(f"{path}: no word")
    return words, _checked(path, words, np.stack(rows))


# --- text and binary --------------------------------------------------------------------------------------------------


def _read(path: Path, file: BufferedReader, first: bytes, most: int | None) -> tuple[list[str], list[np.ndarray]]:
    head = HEAD.match(first.rstrip(b"\n"))
    n, d = (int(head[1]), int(head[2])) if head else (None, None)
    if n is not None and d is not None and not 0 < n * d <= MOST_NUMBERS:
        raise CheckpointError(f"{path}: {n:,} words of {d:,} numbers are too many, or none")
    if n is not None:
        file.readline(LONGEST)
    most = n if most is None else most if n is None else min(n, most)
    read = _text if d is None or _is_text(file, d) else _binary
    words, rows = [], []
    for number, (word, row) in enumerate(read(path, file, d)):
        if number == most:
            break
        words.append(word.decode("utf-8", errors="replace"))
        rows.append(row)
        if len(row) != len(rows[0]):
            raise CheckpointError(f"{path}, word {number + 1}: {len(row)} numbers, but the first has {len(rows[0])}")
    if n is not None and len(words) < (most or 0):
        raise CheckpointError(f"{path} says it has {n:,} words, and ends after {len(words):,}")
    return words, rows


def _text(path: Path, file: BufferedReader, d: int | None) -> Iterator[tuple[bytes, np.ndarray]]:
    for number, line in enumerate(iter(lambda: file.readline(LONGEST), b""), 1):
        line = line.rstrip()
        if not line:
            continue
        d = line.count(b" ") if d is None else d
        word, *numbers = line.rsplit(b" ", d)  # GloVe's 840B has words with spaces
        try:
            row = np.array(numbers, dtype=np.float32)
        except ValueError:
            row = None
        if row is None or not len(row):
            raise CheckpointError(f"{path}, vector {number}: not a word and its numbers")
        yield word, row


def _binary(path: Path, file: BufferedReader, d: int | None) -> Iterator[tuple[bytes, np.ndarray]]:
    assert d is not None
    rest = b""
    while True:
        block = file.read(1 << 20)
        rest += block
        at = 0
        while (space := rest.find(b" ", at)) >= 0 and space + 1 + 4 * d <= len(rest):
            yield rest[at:space].lstrip(b"\n"), np.frombuffer(rest, "<f4", d, space + 1)
            at = space + 1 + 4 * d
        rest = rest[at:]
        if len(rest) > LONGEST + 4 * d:
            raise CheckpointError(f"{path} is damaged: a word of more than {LONGEST:,} bytes")
        if not block:
            if rest.strip():
                raise CheckpointError(f"{path} is cut short: its last vector is not whole")
            return


def _is_text(file: BufferedReader, d: int) -> bool:
    """Whether the line behind a head is a word and `d` numbers in letters."""
    here = file.tell()
    line = file.readline(LONGEST).rstrip()
    file.seek(here)
    return _numbers_of(line) == d


def _first_line(path: Path) -> bytes | None:
    """The first line, if it is a head or a word with numbers."""
    try:
        with open_unpacked(path) as (file, _):
            line = file.readline(LONGEST)
    except (*DAMAGED, InputError):
        return None
    known = HEAD.match(line.rstrip(b"\n")) or _numbers_of(line.rstrip()) > 1
    return line if known else None


def _numbers_of(line: bytes) -> int:
    """How many numbers stand behind the first word; 0 where something else does."""
    _, *numbers = line.split(b" ")
    try:
        return len([float(number) for number in numbers])
    except ValueError:
        return 0


# --- an array, and the words beside it --------------------------------------------------------------------------------


def _array(path: Path, most: int | None) -> tuple[list[str], Matrix]:
    matrix = open_npy(path)
    if matrix.ndim != 2 or matrix.dtype.kind != "f":
        raise CheckpointError(f"{path} has shape {matrix.shape} and kind {matrix.dtype}: expected word × number")
    words = _words_beside(path, len(matrix))[:most]
    return words, _checked(path, words, np.array(matrix[:most], dtype=np.float32))


def _words_beside(path: Path, n: int) -> list[str]:
    """The words of the file whose name begins most like the array's."""
    beside = [file for file in path.parent.iterdir() if file.suffix in (".parquet", ".txt") and file.is_file()]
    if not beside:
        raise CheckpointError(f"{path}: its words are wanted beside it, one a row: a .parquet or a .txt")
    file = max(sorted(beside), key=lambda file: _alike(file.name, path.name))
    try:
        words = (
            _parquet(file, n + 1) if file.suffix == ".parquet" else read_bytes(file, MOST_OF_WORDS).decode().split("\n")
        )
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{file} has the words of {path.name} and is not UTF-8: {error}") from None
    words = words if words[-1] or len(words) == n else words[:-1]
    if len(words) != n:
        raise CheckpointError(f"{path} has {n:,} vectors, and {file} has {len(words):,} words")
    return words


def _alike(a: str, b: str) -> int:
    """How many letters two names begin with in common."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _parquet(path: Path, most: int) -> list[str]:
    """At most so many words, from the one column of texts."""
    try:
        columns = text_columns(path)
        if len(columns) != 1:
            raise CheckpointError(f"{path}: expected one column of words, found {', '.join(columns) or 'none'}")
        rows = islice(read_parquet(path, columns), most)
        return ["" if row[columns[0]] is None else row[columns[0]] for row in rows]
    except InputError as error:
        raise CheckpointError(str(error)) from None


def _checked(path: Path, words: list[str], matrix: Matrix) -> Matrix:
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        raise CheckpointError(f"{path}: the vector of {words[int(finite.argmin())]!r} has a number that is none")
    return matrix
