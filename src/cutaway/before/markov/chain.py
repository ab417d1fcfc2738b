"""What all Markov chains share: count what follows a feature, let the active features vote, draw the next word.

    row of a feature    how often each word followed it / how often it was followed: a row of the transition matrix
    votes               the sum of the rows of all active features: their one-hot rows times that matrix
    p(next | past)      votes / sum of the votes

Chains differ only in the features that a text makes active. The lecture has no end-of-sentence token: a text ends
where nothing ever followed (the row of `please` is all zeros), and a word that ends one sentence but not another never
ends a generated text. To count ends, add them to the sentences (`marked`).
"""

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from cutaway.errors import InputError

Feature = tuple[str, ...]
LARGEST = 1 << 24  # numbers of one matrix: 128 MB


class Matrix(NamedTuple):
    """A matrix with the names of its rows and columns, in the order of the arguments of `pictures.HeatMap`."""

    values: Float[np.ndarray, "row column"]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    title: str
    row_name: str
    column_name: str
    what: str


class Chain(ABC):
    """A Markov chain, trained by counting sentences: sequences of words or of any other strings.

    `weights` are how often each sentence occurs, or how probable it is; without them each occurs once.
    """

    order: int  # words that it needs before it can say anything
    reach: int  # words that it looks at, the last one included
    between = " "  # the words of a feature's name

    def __init__(self, lines: Sequence[Sequence[str]], weights: Sequence[int | float] | None = None) -> None:
        weights = [1.0] * len(lines) if weights is None else weights
        self._check(lines, weights)
        self.words = tuple(dict.fromkeys(word for line in lines for word in line))
        self.counts: dict[Feature, dict[str, float]] = {}
        for line, weight in zip(lines, weights, strict=True):
            for end in range(self.order, len(line) + 1):
                for feature in self.features(line[max(end - self.reach, 0) : end]):
                    followers = self.counts.setdefault(feature, {})
                    for word in line[end : end + 1]:  # behind the last word stands none
                        followers[word] = followers.get(word, 0) + weight

    def _check(self, lines: Sequence[Sequence[str]], weights: Sequence[int | float]) -> None:
        if isinstance(lines, str):
            raise InputError("this is a text: a chain learns from sentences, `sentences(text)`")
        longest = max(map(len, lines), default=0)
        if not longest:
            raise InputError("there are no words to count")
        if longest <= self.order:
            raise InputError(
                f"too little to count: the {self} needs a sentence of {self.order + 1} words, and the longest has "
                f"{longest}; give it more, or mark the ends: marked(lines, order={self.order})"
            )
        if len(weights) != len(lines):
            raise InputError(f"{len(weights)} weights for {len(lines)} sentences: give one for each")
        odd = [weight for weight in weights if not 0 < weight < math.inf]
        if odd:
            raise InputError(f"a sentence of weight {odd[0]}: weights are positive numbers")

    @abstractmethod
    def features(self, past: Sequence[str]) -> list[Feature]:
        """The features that are active after these words, of which only the last `reach` matter."""

    @abstractmethod
    def __str__(self) -> str:
        """The name of the kind of chain."""

    def row(self, feature: Feature | str) -> dict[str, float]:
        """The probability of each word after a feature; empty if nothing followed it."""
        if isinstance(feature, str):  # nothing would ever follow it
            raise InputError(f"{feature!r} is a text: a feature is a tuple of words, as {tuple(feature.split())}")
        followers = self.counts.get(feature, {})
        total = math.fsum(followers.values())
        return {word: count / total for word, count in followers.items()}

    def votes(self, past: Sequence[str]) -> dict[str, float]:
        """The sum of the rows of all active features, without words that get no vote."""
        votes: defaultdict[str, float] = defaultdict(float)
        for feature in self.features(past):
            for word, share in self.row(feature).items():
                votes[word] += share
        return dict(votes)

    def probabilities(self, past: Sequence[str]) -> dict[str, float]:
        """The probability of each next word: its share of the votes."""
        votes = self.votes(past)
        total = math.fsum(votes.values())
        return {word: vote / total for word, vote in votes.items()}

    def log_probabilities(self, text: Sequence[str]) -> list[float]:
        """ln p of each word given those before it, from the first with `order` words before it; −∞ for what was never
        seen, since the lecture's chains are not smoothed."""
        pasts = (text[max(end - self.reach, 0) : end] for end in range(self.order, len(text)))
        found = (self.probabilities(past).get(word, 0.0) for past, word in zip(pasts, text[self.order :], strict=True))
        return [math.log(p) if p else -math.inf for p in found]

    def generate(self, start: Sequence[str], *, seed: int = 0, limit: int = 100) -> list[str]:
        """Continues `start` by at most `limit` sampled words, until nothing follows."""
        if len(start) < self.order:
            raise InputError(f"the {self} needs {self.order} words to start from: {len(start)} given")
        unknown = [word for word in start if word not in self.words]
        if unknown:
            raise InputError(f"the {self} never saw {unknown[0]!r}: start from words of its text")
        text, random = list(start), Random(seed)
        while len(text) < len(start) + limit and (votes := self.votes(text)):
            text += random.choices(list(votes), list(votes.values()))
        return text

    def name(self, feature: Feature) -> str:
        return self.between.join(map(plain_matrix, feature))

    def matrix(self, features: Sequence[Feature] | None = None, words: Sequence[str] | None = None) -> Matrix:
        """The transition matrix: a row for each feature and a column for each word, of these or of all."""
        features = tuple(self.counts) if features is None else tuple(features)
        words = self.words if words is None else tuple(words)
        values = zero_matrix(len(features), len(words))
        for row, feature in zip(values, features, strict=True):
            follows = self.row(feature)
            row[:] = [follows.get(word, 0.0) for word in words]
        names = tuple(map(self.name, features)), tuple(map(plain_matrix, words))
        return Matrix(values, *names, f"{self}: what follows", "feature", "next word", "probability")

    def table(self, rows: int = 40, followers: int = 6) -> str:
        """The matrix for a terminal, without zeros: the most frequent features, with the likeliest words first."""
        most = sorted(self.counts, key=lambda feature: -sum(self.counts[feature].values()))[:rows]
        margin = max(len(self.name(feature)) for feature in most)
        lines = [f"{self}: {len(self.words):,} words, {len(self.counts):,} features"]
        for feature in most:
            best = sorted(self.row(feature).items(), key=lambda item: -item[1])
            said = [f"{plain_matrix(word)} {share:.2g}" for word, share in best[:followers]] or ["nothing follows"]
            more = [f"and {len(best) - followers:,} more"] if len(best) > followers else []
            lines.append(f"{self.name(feature):>{margin}}  →  " + "  ".join(said + more))
        if len(self.counts) > rows:
            lines.append(f"and {len(self.counts) - rows:,} more features")
        return "\n".join(lines)


def zero_matrix(rows: int, columns: int) -> Float[np.ndarray, "row column"]:
    if rows * columns > LARGEST:
        raise InputError(f"a matrix of {rows:,} × {columns:,} is too large: choose features and words")
    return np.zeros((rows, columns))


def plain_matrix(word: str) -> str:
    """A word with its control characters escaped, for a terminal."""
    return word if word.isprintable() else ascii(word)[1:-1]
