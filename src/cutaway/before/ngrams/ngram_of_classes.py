"""n-grams of classes: the classes of the last words say which class comes next, and the class which word.

    p(w | h) = p(c(w) | c(h)) · p(w | c(w))          p(w | c) = times of w / times of all in c

Which word follows «on» is no longer learnt for each weekday by itself (Brown et al. 1992). The n-gram of classes is
smoothed as any other (`smoothing`). Each of the rare words, which are a class, gives ½ of its count, or
n₁ / (n₁ + 2 n₂) where some were seen once and some twice, to those that were never seen: <unk> is one of them.

    model = train_class_ngrams(ids, vocab_size, order=4, classes=200, end=end)
    mixed = fit_mixture([model, train_ngrams(ids, vocab_size, order=4, end=end)], held_out)        # `mixture`
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from cutaway.arguments import Progress, no_progress
from cutaway.before.ngrams.brown_clusters import MOST, WordClasses, brown_classes
from cutaway.before.ngrams.count_arrays import NGRAMS, CountArrays
from cutaway.before.ngrams.counts import Ids
from cutaway.before.ngrams.ngram import NGramModel
from cutaway.before.ngrams.predictor import Predictor
from cutaway.before.ngrams.smoothing import train_ngrams
from cutaway.errors import CheckpointError, InputError
from cutaway.folders import replacing_folder


@dataclass(frozen=True, eq=False)
class ClassNGramModel(Predictor):
    """`model` is the n-gram model of the classes."""

    classes: WordClasses
    model: NGramModel
    end: int | None

    @property
    def vocab_size(self) -> int:  # type: ignore[override]
        return len(self.classes.of)

    @property
    def order(self) -> int:
        return self.model.order

    def __str__(self) -> str:
        return f"{self.model} of {len(self.classes.bits):,} classes"

    @cached_property
    def within(self) -> Float64[np.ndarray, " vocab"]:
        """The probability of each token within its class."""
        times = self.classes.times.astype(np.float64)
        for number, bits in enumerate(self.classes.bits):
            if not bits:
                its = self.classes.of == number
                times[its] = _shared(self.classes.times[its])
        return times / np.bincount(self.classes.of, times)[self.classes.of]

    def log_probabilities(self, ids: Ids) -> Float64[np.ndarray, " token"]:
        classes = self._of(ids)
        return self.model.log_probabilities(classes) + np.log(self.within[ids])

    def next_probabilities(self, past: Ids | Sequence[int]) -> Float64[np.ndarray, " vocab"]:
        return self.model.next_probabilities(self._of(past))[self.classes.of] * self.within

    def _of(self, ids: Ids | Sequence[int]) -> Int64[np.ndarray, " token"]:
        some = np.asarray(ids, np.int64)
        odd = some[(some < 0) | (some >= self.vocab_size)]
        if len(odd):
            raise InputError(f"the id {odd[0]} is not in 0 … {self.vocab_size - 1}")
        return self.classes.of[some]

    def save(self, folder: Path) -> None:
        """Saves the model for `open`. An earlier one in the folder is replaced, all its files at once."""
        with replacing_folder(folder, NGRAMS) as fresh:
            self.write(fresh)

    def write(self, folder: Path) -> None:
        """Writes the same files into a folder that nobody reads yet."""
        self.model.write(folder)
        shelf = CountArrays(folder)
        shelf.put("class", self.classes.of)
        shelf.put("times", self.classes.times)
        about = {"bits": list(self.classes.bits), "information": self.classes.information, "end": self.end}
        shelf.seal("classes", about)

    @classmethod
    def open(cls, folder: Path) -> "ClassNGramModel":
        shelf, model = CountArrays(folder), NGramModel.open(folder)
        about = shelf.numbers("classes")
        of, times = shelf.get("class", np.int64), shelf.get("times", np.int64)
        try:
            bits, information, end = tuple(map(str, about["bits"])), float(about["information"]), about["end"]
            fits = len(of) == len(times) and set(of.tolist()) == set(range(len(bits))) and model.vocab_size == len(bits)
            fits = fits and (of[end] if end is not None else None) == model.end
            counted = np.array([bool(its) for its in bits])  # of the rare words, one class, some may stand nowhere
            fits = fits and bool((times >= counted[of]).all())
        except (KeyError, TypeError, ValueError, IndexError):
            fits = False
        if not fits:
            raise CheckpointError(f"{folder / 'classes.json'} and the tables beside it do not fit: train again")
        return cls(WordClasses(of, times, bits, information), model, end)


def train_class_ngrams(
    ids: Ids,
    vocab_size: int,
    order: int,
    classes: int | WordClasses,
    *,
    end: int | None = None,
    smoothing: str = "kneser-ney",
    most: int = MOST,
    progress: Progress = no_progress,
) -> ClassNGramModel:
    """Clusters the tokens, unless `classes` are given, counts the classes, and smooths."""
    if isinstance(classes, int):
        classes = brown_classes(ids, vocab_size, classes, end=end, most=most, progress=progress)
    its_end = None if end is None else int(classes.of[end])
    model = train_ngrams(classes.of[ids], len(classes.bits), order, end=its_end, smoothing=smoothing)
    return ClassNGramModel(classes, model, end)


def _shared(times: Int64[np.ndarray, " token"]) -> Float64[np.ndarray, " token"]:
    """Discounts counts in favour of what was never seen."""
    unseen = times == 0
    if not unseen.any() or unseen.all():
        return np.where(unseen, 1.0, times)
    once, twice = (times == 1).sum(), (times == 2).sum()
    taken = once / (once + 2 * twice) if once and twice else 0.5
    return np.where(unseen, taken * (~unseen).sum() / unseen.sum(), times - taken)
