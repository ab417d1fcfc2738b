"""n-gram models of ids: the next token from the last n − 1, or from fewer where those were never seen together.

    p(w | h) = what the table has for (h, w), or else weight(h) · p(w | h without its first token)

Every kind of smoothing fits this form (that of ARPA files); they differ in the numbers in the tables (`smoothing`). A
context that was never seen has the weight 1. (Shannon 1948; Katz 1987.)

    model = train_ngrams(ids, vocab_size, order=5, end=tokenizer.eos_id, folder=Path("counts"))
    model.log_probabilities(other_ids)     ln p of each token
    model.next_probabilities(past)         of all tokens that may come next: they sum to 1
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64

from cutaway.before.ngrams.count_arrays import NGRAMS, CountArrays
from cutaway.before.ngrams.counts import HIGHEST, Ids, started
from cutaway.before.ngrams.predictor import Predictor
from cutaway.errors import CheckpointError, InputError
from cutaway.folders import finish_replacing, replacing_folder

BATCH = 1 << 20  # tokens that are scored at once
SURE, HEAVIEST = 1e-3, 100 * math.log(10)  # ln p, ln of a weight: beyond these it is damage, not rounding


class NgramTable(NamedTuple):
    """The n-grams of one order, sorted by key (`counts`), with ln p of their last token and ln of their weight as a
    context; those of the highest order are no contexts, and have none."""

    keys: Int64[np.ndarray, " ngram"]
    log_p: Float32[np.ndarray, " ngram"]
    log_weight: Float32[np.ndarray, " context"]

    def odd(self, vocab_size: int, shorter: int | None) -> str | None:
        """Which of the arrays is not that of n-grams over so many that are one token shorter, None of single tokens.

        Those who look something up rely on it: every key in its order, every number one of the order below.
        """
        base, before = vocab_size + 1, -1
        for lo in range(0, len(self.keys), BATCH):
            keys = np.asarray(self.keys[lo : lo + BATCH])
            rises = keys[0] > before and bool((keys[1:] > keys[:-1]).all())
            before = int(keys[-1])
            most = base if shorter is None else shorter * base
            if not rises or before >= most or (shorter is not None and (keys % base == vocab_size).any()):
                return "keys"
            if not (self.log_p[lo : lo + BATCH] <= SURE).all():
                return "log_p"
            if not (self.log_weight[lo : lo + BATCH] <= HEAVIEST).all():
                return "log_weight"
        return None

    def find(self, keys: Int64[np.ndarray, " token"]) -> Int64[np.ndarray, " token"]:
        """The number of each key, or −1."""
        if not len(self.keys):
            return np.full(len(keys), -1)
        order = np.argsort(keys)  # in sorted order the look-ups walk through the table instead of jumping
        wanted = keys[order]
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        found = np.empty(len(keys), np.int64)
        found[order] = np.where(self.keys[at] == wanted, at, -1)
        return found


@dataclass(frozen=True)
class NGramModel(Predictor):
    """Ids are 0 … vocab_size − 1; `end` ends a text. `about` describes how the model was trained."""

    vocab_size: int
    end: int | None
    tables: list[NgramTable]
    about: str = ""

    @property
    def order(self) -> int:
        return len(self.tables)

    def __str__(self) -> str:
        return f"{self.order}-gram model" + (f" ({self.about})" if self.about else "")

    def log_probabilities(self, ids: Ids, batch: int = BATCH) -> Float64[np.ndarray, " token"]:
        """ln p of each token given those before it; the first begins a text."""
        stream = started(ids, self.vocab_size, self.end)
        reach, scores = self.order - 1, np.empty(len(stream))
        for lo in range(0, len(stream), batch):
            back = min(lo, reach)
            scores[lo : lo + batch] = self._scores(stream[lo - back : lo + batch].astype(np.int64))[back:]
        return scores[stream != self.vocab_size]

    def _scores(self, stream: Int64[np.ndarray, " token"]) -> Float64[np.ndarray, " token"]:
        numbers, scores = stream, self.tables[0].log_p[stream].astype(np.float64)
        for shorter, table in zip(self.tables, self.tables[1:], strict=False):
            context = np.concatenate([[-1], numbers[:-1]])  # the n-gram that ends one token earlier
            seen = np.flatnonzero(context >= 0)
            found = table.find(context[seen] * (self.vocab_size + 1) + stream[seen])
            scores[seen] += shorter.log_weight[context[seen]]
            numbers = np.full(len(stream), -1)
            numbers[seen] = found
            hit = numbers >= 0
            scores[hit] = table.log_p[numbers[hit]]
        return scores

    def next_probabilities(self, past: Ids | Sequence[int]) -> Float64[np.ndarray, " vocab"]:
        """The probability of every token after a text, which may be empty."""
        last = [int(i) for i in past[max(len(past) - self.order + 1, 0) :]]
        if any(not 0 <= i < self.vocab_size for i in last):
            raise InputError(f"the ids {last} are not all in 0 … {self.vocab_size - 1}")
        begins = [i for i, token in enumerate(last) if token == self.end]
        if begins or len(past) < self.order - 1:
            last = [self.vocab_size, *last[begins[-1] + 1 if begins else 0 :]]
        base = self.vocab_size + 1
        p: np.ndarray = np.exp(self.tables[0].log_p[: self.vocab_size].astype(np.float64))
        for length in range(1, min(len(last), self.order - 1) + 1):
            context = self.number(last[-length:])
            if context is None:
                continue
            table = self.tables[length]
            followers = slice(*np.searchsorted(table.keys, [context * base, (context + 1) * base]).tolist())
            p *= np.exp(float(self.tables[length - 1].log_weight[context]))
            p[table.keys[followers] - context * base] = np.exp(table.log_p[followers].astype(np.float64))
        return p

    def number(self, ngram: Sequence[int]) -> int | None:
        """The number of an n-gram among those of its order; None if it was never seen."""
        number = ngram[0]
        for token, table in zip(ngram[1:], self.tables[1:], strict=False):
            number = int(table.find(np.array([number * (self.vocab_size + 1) + token]))[0])
            if number < 0:
                return None
        return number

    def ngrams(self, order: int, which: slice) -> Int64[np.ndarray, "ngram order"]:
        """The ids of n-grams, given their numbers."""
        columns, keys = [], np.asarray(self.tables[order - 1].keys[which])
        for n in range(order - 1, 0, -1):
            numbers, last = np.divmod(keys, self.vocab_size + 1)
            columns.append(last)
            keys = self.tables[n - 1].keys[numbers]
        return np.stack([*columns, keys][::-1], axis=1)

    def save(self, folder: Path) -> None:
        """Saves the model for `open`. An earlier one in the folder is replaced, all its files at once."""
        with replacing_folder(folder, NGRAMS) as fresh:
            self.write(fresh)

    def write(self, folder: Path) -> None:
        """Writes the same files into a folder that nobody reads yet."""
        shelf = CountArrays(folder)
        for n, table in enumerate(self.tables, 1):
            for kind, array in zip(NgramTable._fields, table, strict=True):
                shelf.put(f"{kind}{n}", array)
        self.seal(shelf)

    def seal(self, shelf: CountArrays) -> None:
        numbers = {"order": self.order, "vocab_size": self.vocab_size, "end": self.end, "about": self.about}
        shelf.seal("ngrams", numbers)

    @classmethod
    def open(cls, folder: Path) -> "NGramModel":
        """A model that was saved or trained in this folder, mapped."""
        finish_replacing(folder)
        shelf = CountArrays(folder)
        numbers = shelf.numbers("ngrams")
        try:
            order, vocab_size, end = int(numbers["order"]), int(numbers["vocab_size"]), numbers["end"]
            about = str(numbers["about"])
        except (KeyError, TypeError, ValueError):
            raise CheckpointError(f"{folder / 'ngrams.json'} should give order, vocab_size, end and about") from None
        if not (1 <= order <= HIGHEST and (end is None or (isinstance(end, int) and 0 <= end < vocab_size))):
            raise CheckpointError(f"{folder / 'ngrams.json'}: order {order} or end {end} is none that we write")
        kinds = {"keys": np.int64, "log_p": np.float32, "log_weight": np.float32}
        tables = [
            NgramTable(*(shelf.get(f"{kind}{n}", dtype) for kind, dtype in kinds.items())) for n in range(1, order + 1)
        ]
        sizes = [len(table.keys) for table in tables]
        same = [len(table.log_p) for table in tables] == sizes == [len(t.log_weight) for t in tables[:-1]] + sizes[-1:]
        if not same or sizes[0] != vocab_size + 1:
            raise CheckpointError(f"the tables in {folder} are not of one length: the folder is damaged, train again")
        for n, table in enumerate(tables, 1):
            odd = table.odd(vocab_size, sizes[n - 2] if n > 1 else None)
            if odd is not None:
                raise CheckpointError(f"{shelf.path(f'{odd}{n}')} holds what no {n}-gram has: damaged, train again")
        return cls(vocab_size, end, tables, about)
