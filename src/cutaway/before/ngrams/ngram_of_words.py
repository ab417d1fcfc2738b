"""n-gram models of words, with the face of a chain: `words`, `probabilities`, `log_probabilities`, `generate`.

    model = NGrams(sentences(text), order=3)
    model.probabilities("the battery".split())     every word it knows, <eos> and <unk>: they sum to 1

A sentence begins behind <sos> and ends with <eos>; a word that was never seen is <unk>. Any strings will do as words:
characters are `NGrams([list(line) for line in lines])`. The order of an n-gram counts the word that comes next; a
Markov chain of order 2 looks as far back as a 3-gram. With `classes` it is an n-gram of so many Brown clusters.
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from cutaway.before.markov.sentences_of_words import EOS, SOS
from cutaway.before.ngrams.arpa import read_arpa, write_arpa
from cutaway.before.ngrams.counts import Ids
from cutaway.before.ngrams.ngram import NGramModel
from cutaway.before.ngrams.ngram_of_classes import ClassNGramModel, train_class_ngrams
from cutaway.before.ngrams.smoothing import train_ngrams
from cutaway.errors import InputError

UNK = "<unk>"


class NGrams:
    """`words[i]` is the word of the id i of `model`."""

    def __init__(
        self,
        lines: Sequence[Sequence[str]],
        order: int = 3,
        *,
        smoothing: str = "kneser-ney",
        classes: int | None = None,
    ) -> None:
        if isinstance(lines, str):
            raise InputError("this is a text: n-grams are learnt from sentences, `sentences(text)`")
        if not any(map(len, lines)):
            raise InputError("there are no words to count: the text is empty")
        self._set(dict.fromkeys(chain((UNK, EOS), *lines)))
        for mark in (SOS, EOS):
            if any(mark in line for line in lines):
                raise InputError(f"{mark!r} stands in a sentence: beginnings and ends are marked here, leave it out")
        ids = self.ids(list(chain.from_iterable((*line, EOS) for line in lines)))
        size, end = len(self.words), self._ids[EOS]
        self.model: NGramModel | ClassNGramModel
        if classes is None:
            self.model = train_ngrams(ids, size, order, end=end, smoothing=smoothing)
        else:
            self.model = train_class_ngrams(ids, size, order, classes, end=end, smoothing=smoothing)

    def _set(self, words: Sequence[str] | dict[str, None]) -> None:
        self.words = tuple(words)
        self._ids = {word: i for i, word in enumerate(self.words)}

    @property
    def order(self) -> int:
        return self.model.order

    def __str__(self) -> str:
        return f"{self.model} of {len(self.words):,} words"

    def ids(self, text: Sequence[str]) -> Ids:
        unknown = self._ids[UNK]
        return np.fromiter((self._ids.get(word, unknown) for word in text), np.int64, len(text))

    def probabilities(self, past: Sequence[str]) -> dict[str, float]:
        """The probability of each word that may come next, after the beginning of a sentence."""
        p = self.model.next_probabilities(self.ids(past))
        return dict(zip(self.words, p.tolist(), strict=True))

    def log_probabilities(self, text: Sequence[str]) -> list[float]:
        """ln p of each word given those before it; add <eos> to the text to score its end."""
        return self.model.log_probabilities(self.ids(text)).tolist()

    def generate(self, start: Sequence[str] = (), *, seed: int = 0, limit: int = 100) -> list[str]:
        """Continues `start` by at most `limit` words, until the sentence ends; never with <unk>."""
        ids = self.model.generate(self.ids(start).tolist(), seed=seed, limit=limit, never=self._ids[UNK])
        return [*start, *(self.words[i] for i in ids[len(start) :])]

    def save_arpa(self, path: Path) -> None:
        if not isinstance(self.model, NGramModel):
            raise InputError(f"an ARPA file has no place for classes: save the {self.model} with `model.save(folder)`")
        write_arpa(self.model, path, self.words)

    @classmethod
    def from_arpa(cls, path: Path) -> "NGrams":
        found = cls.__new__(cls)
        found.model, words = read_arpa(path)
        found._set(words)
        return found
