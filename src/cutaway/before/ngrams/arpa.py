"""ARPA files, the exchange format of n-gram models (SRILM, KenLM): text, one line per n-gram.

    \\data\\                            how many n-grams of each order
    ngram 1=4
    \\1-grams:
    -0.77	the	-0.30              log₁₀ p, the words, log₁₀ of the weight as a context (absent: 0)
    \\end\\

<s> and </s> are the beginning and the end, <unk> is any other word; −99 stands for log 0. Numbers have nine digits, so
that a 32-bit float is restored, except for the last bit, which the change of base may cost. Files compressed with gzip
or xz are read as well, and recognised by their first bytes.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from cutaway.before.markov.sentences_of_words import EOS
from cutaway.before.ngrams.counts import HIGHEST
from cutaway.before.ngrams.ngram import NGramModel, NgramTable
from cutaway.errors import CheckpointError, InputError
from cutaway.files import regular_size, replacing
from cutaway.unpacked import DAMAGED, open_unpacked

LINES = 1 << 16  # written at once
LONGEST = 1 << 16  # bytes of a line that is read
SPACE = b" \t\r\n"
HEAVIEST = 100  # log₁₀ of a weight
LN10 = float(np.log(10))
START, END, UNKNOWN = "<s>", "</s>", "<unk>"
OURS = {END: EOS, "<UNK>": UNKNOWN}


def is_arpa(path: Path) -> bool:
    """Whether a file is named as an ARPA file, compressed or not."""
    return re.search(r"\.arpa(\.gz|\.xz)?$", path.name) is not None


def arpa_words(names: Sequence[str], end: int | None) -> list[str]:
    """The words as they are written, <s> included; refuses those that cannot be written."""
    words = [*names, START]
    if end is not None:
        words[end] = END
    for word in words:
        if word.encode().split() != [word.encode()] or "\0" in word:
            raise InputError(f"the word {word!r} does not fit an ARPA file (white space): write ids, names=None")
    times = Counter(OURS.get(word, word) for word in words)
    if twice := next((word for i, word in enumerate(names) if i != end and times[OURS.get(word, word)] > 1), None):
        raise InputError(
            f"the name {twice!r} is given to two ids, and an ARPA file identifies words by name: "
            "take it out of the text, or write a folder"
        )
    return words


def write_arpa(model: NGramModel, path: Path, names: Sequence[str] | None = None) -> None:
    """`names[i]` is the word of the id i; without them the ids are written. The end of a text is always </s>."""
    names = [str(i) for i in range(model.vocab_size)] if names is None else names
    if len(names) != model.vocab_size:
        raise InputError(f"{len(names)} names for {model.vocab_size} ids: give one for each")
    words = arpa_words(names, model.end)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\\data\\\n")
        file.writelines(f"ngram {n}={len(table.keys)}\n" for n, table in enumerate(model.tables, 1))
        for n, table in enumerate(model.tables, 1):
            file.write(f"\n\\{n}-grams:\n")
            for lo in range(0, len(table.keys), LINES):
                which = slice(lo, lo + LINES)
                ngrams = (" ".join([words[i] for i in ngram]) for ngram in model.ngrams(n, which).tolist())
                scores = map("{:.9g}".format, _log10(table.log_p[which]))
                columns = [scores, ngrams]
                if n < model.order:
                    columns.append(map("{:.9g}".format, _log10(table.log_weight[which])))
                file.writelines("\t".join(row) + "\n" for row in zip(*columns, strict=True))
        file.write("\n\\end\\\n")


def _log10(logs: np.ndarray) -> list[float]:
    return np.maximum(logs.astype(np.float64) / LN10, -99.0).tolist()


def read_arpa(path: Path) -> tuple[NGramModel, tuple[str, ...]]:
    """Reads a model and its words by id. A model without <unk> gets one of probability 0."""
    file = _File(path)
    sizes = file.sizes()
    words: dict[str, int] = {}
    tables: list[NgramTable] = []
    for n, size in enumerate(sizes, 1):
        if n == 1:
            rows = list(file.rows(n, size))
            words = _numbered(path, [name for _, (name,), _ in rows])
            if len(rows) < len(words):
                rows.append((-np.inf, [UNKNOWN], 0.0))
        ids, log_p, log_weight = array("q"), array("f"), array("f")
        for score, names, weight in rows if n == 1 else file.rows(n, size):
            try:
                ids.extend([words[name] for name in names])
            except KeyError as error:
                raise file.wrong(f"has {error}, which is no 1-gram") from None
            log_p.append(score * LN10)
            log_weight.append(weight * LN10)
        keys = _keys(path, np.array(ids, np.int64).reshape(-1, n), tables, words)
        order = np.argsort(keys)
        weights = np.array(log_weight, np.float32)[order] if n < len(sizes) else np.empty(0, np.float32)
        tables.append(NgramTable(keys[order], np.array(log_p, np.float32)[order], weights))
    if file.line() != "\\end\\":
        raise file.wrong("should be \\end\\")
    return NGramModel(len(words) - 1, words.get(EOS), tables, f"from {path.name}"), tuple(words)[:-1]


def _numbered(path: Path, names: list[str]) -> dict[str, int]:
    """Words by id, in the order of the file; <s> gets the largest, as everywhere here."""
    if START not in names:
        raise CheckpointError(f"{path} has no {START}: a model that does not know where sentences begin is not read")
    words = dict.fromkeys(name for name in [*names, UNKNOWN] if name != START)
    return {name: i for i, name in enumerate([*words, START])}


def _keys(
    path: Path, ids: Int64[np.ndarray, "ngram order"], tables: list[NgramTable], words: dict[str, int]
) -> Int64[np.ndarray, " ngram"]:
    """The keys of n-grams, whose contexts are in the tables of lower orders."""
    numbers = ids[:, 0]
    for n in range(1, ids.shape[1]):
        keys = numbers * len(words) + ids[:, n]
        numbers = tables[n].find(keys) if n < ids.shape[1] - 1 else keys
        if (numbers < 0).any():
            odd = " ".join(tuple(words)[i] for i in ids[np.argmin(numbers)])
            raise CheckpointError(f"{path} has {odd!r}, but not its context")
    if len(np.unique(numbers)) < len(numbers):
        raise CheckpointError(f"{path} has an n-gram of order {ids.shape[1]} twice")
    return numbers


class _File:
    """The lines of an ARPA file that are not empty."""

    def __init__(self, path: Path) -> None:
        regular_size(path)
        self.path, self.at, self.lines = path, 0, self._read()

    def _read(self) -> Iterator[str]:
        for line in self._lines():
            self.at += 1
            if len(line) == LONGEST:
                raise self.wrong("is too long")
            try:
                if kept := line.strip(SPACE).decode():
                    yield kept
            except UnicodeDecodeError:
                raise self.wrong("is not UTF-8") from None

    def _lines(self) -> Iterator[bytes]:
        try:
            with open_unpacked(self.path) as (file, _):
                while line := file.readline(LONGEST):
                    yield line
        except DAMAGED as error:
            raise CheckpointError(f"{self.path} cannot be read: {error}") from None

    def line(self) -> str:
        return next(self.lines, "")

    def wrong(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path} is no ARPA file: line {self.at} {what}")

    def sizes(self) -> list[int]:
        """The number of n-grams of each order, from the header."""
        if self.line() != "\\data\\":
            raise self.wrong("should be \\data\\")
        sizes: list[int] = []
        while (line := self.line()) != "\\1-grams:":
            found = re.fullmatch(rf"ngram {len(sizes) + 1} ?= ?(\d{{1,12}})", line)
            if found is None or len(sizes) == HIGHEST:
                raise self.wrong(f"should be ngram {len(sizes) + 1}=…, at most of order {HIGHEST}, or \\1-grams:")
            sizes.append(int(found[1]))
        if not sizes:
            raise self.wrong("comes before any ngram 1=…")
        return sizes

    def rows(self, order: int, size: int) -> Iterator[tuple[float, list[str], float]]:
        """log₁₀ p, the words, log₁₀ of the weight."""
        if order > 1 and self.line() != f"\\{order}-grams:":
            raise self.wrong(f"should be \\{order}-grams:")
        for _ in range(size):
            score, *names = re.split(r"[ \t]+", self.line())
            weight = names.pop() if len(names) > order else "0"
            try:
                numbers = float(score), float(weight)
            except ValueError:
                raise self.wrong("should have log p, words and a weight") from None
            if len(names) != order or not (numbers[0] <= 0 and -np.inf < numbers[1] < HEAVIEST):
                raise self.wrong(f"should have log p ≤ 0, {order} words and a weight below 10^{HEAVIEST}")
            yield (
                -np.inf if numbers[0] <= -99 else numbers[0],
                [OURS.get(name, name) for name in names],
                numbers[1],
            )
