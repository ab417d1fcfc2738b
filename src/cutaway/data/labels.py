"""Labels: what a model should predict for each example, as numbers on the disk.

A class or a tag is written with the number of its first appearance. When all have been seen, their names are sorted
and the numbers changed accordingly; so one pass is enough, and the order of the rows does not matter.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from cutaway.data.cache import Array
from cutaway.data.corpus import Corpus, SequenceWriter, open_corpus
from cutaway.data.table_files import Value
from cutaway.errors import InputError

Kind = Literal["class", "number", "tags"]

NO_TAG = -100  # where a loss does not look
CHUNK = 1 << 20


@dataclass(frozen=True)
class LabelColumn:
    """Which column holds the labels, and of which kind they are.

    - class: one of some names: those in the data, sorted, unless `names` gives them in their order;
    - number: what a regression should predict;
    - tags: a name for each word of the first column of text. The first token of a word has the word's tag, the others
      have −100.
    """

    column: str
    kind: Kind = "class"
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"kind={self.kind!r}: labels are {', '.join(get_args(Kind))}")
        if self.names is not None and (self.kind == "number" or len(set(self.names)) < len(self.names)):
            raise InputError(f"names={self.names}: a {self.kind} has no names, or a name stands there twice")


class LabelWriter:
    """Writes labels into the files `labels.ids` and `labels.starts`."""

    def __init__(self, folder: Path, labels: LabelColumn) -> None:
        self.labels, self.path = labels, folder / "labels.ids"
        self.dtype = {"class": "<i8", "number": "<f8", "tags": "<i4"}[labels.kind]
        self.seen = {name: number for number, name in enumerate(labels.names or ())}
        self.writer = SequenceWriter(folder, "labels", self.dtype)

    def __enter__(self) -> "LabelWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self.writer.__exit__()

    def add(self, value: Value, where: str) -> None:
        """The class or number of the next example."""
        if isinstance(value, list):
            raise InputError(
                f"{where}: {self.labels.column} holds a list; say kind='tags' if it has a tag for each word"
            )
        self.writer.add([self._number(value, where) if self.labels.kind == "class" else _float(value, where)])
        self.writer.end()

    def add_tags(self, tags: list[str], words: list[str], places: list[tuple[int, int]], where: str) -> None:
        """The tags of the words that were joined with spaces and then cut into tokens at these places."""
        if len(tags) != len(words):
            raise InputError(f"{where}: {len(tags)} tags for {len(words)} words")
        numbers = [self._number(tag, where) for tag in tags]
        self.writer.add([NO_TAG if word is None else numbers[word] for word in _first_of(words, places, where)])
        self.writer.end()

    def _number(self, name: str, where: str) -> int:
        if not name or name.isspace():
            raise InputError(f"{where}: the {self.labels.column} is empty")
        if name not in self.seen and self.labels.names is not None:
            raise InputError(f"{where}: the {self.labels.kind} {name!r} is none of {', '.join(self.labels.names)}")
        return self.seen.setdefault(name, len(self.seen))

    def finish(self) -> dict[str, Any]:
        """Give the names their final numbers, when the files are closed; `open_labels` wants what is returned."""
        names = None
        if self.labels.kind != "number":
            names = list(self.seen) if self.labels.names is not None else _in_order(self.seen)
            if names != list(self.seen):
                place = {name: number for number, name in enumerate(names)}
                _renumber(self.path, self.dtype, [place[name] for name in self.seen])
        return {**self.writer.facts(), "kind": self.labels.kind, "names": names}


def open_labels(entry: Path, said: dict[str, Any]) -> tuple[Array | Corpus, tuple[str, ...] | None]:
    """What a `LabelWriter` wrote, from an entry of the cache, and the names of the numbers."""
    corpus = open_corpus(entry, "labels", said)
    names = None if said["names"] is None else tuple(said["names"])
    return corpus if said["kind"] == "tags" else corpus.ids, names


def _first_of(words: list[str], places: list[tuple[int, int]], where: str) -> list[int | None]:
    """For each token the word that it is the first of, or None."""
    begins = list(accumulate((len(word) + 1 for word in words), initial=0))
    result: list[int | None] = []
    next_word = 0
    for begin, end in places:
        # The last character says where a token belongs: the first may be the space before its word.
        word = bisect_right(begins, end - 1) - 1
        is_first = begin < end and word >= next_word and end - 1 < begins[word] + len(words[word])
        if is_first and word > next_word:
            break
        result.append(word if is_first else None)
        next_word += is_first
    if next_word < len(words):
        raise InputError(f"{where}: the tokenizer has no token for the word {words[next_word]!r}, which has a tag")
    return result


def _in_order(names: Iterable[str]) -> list[str]:
    try:
        return sorted(names, key=lambda name: (int(name), name))  # 9 before 10
    except ValueError:
        return sorted(names)


def _float(value: str, where: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{where}: {value!r} is not a number")
    return number


def _renumber(path: Path, dtype: str, new: list[int]) -> None:
    table = np.array(new, dtype)
    with path.open("r+b") as file:
        while data := file.read(CHUNK):
            numbers = np.frombuffer(data, dtype)
            file.seek(-len(data), 1)
            file.write(np.where(numbers == NO_TAG, numbers, table[np.maximum(numbers, 0)]).tobytes())
