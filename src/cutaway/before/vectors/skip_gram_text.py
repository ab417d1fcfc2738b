"""A text as skip-gram reads it: without rare words, with frequent ones subsampled, and each word with its context.

    kept with probability    √(t/share) + t/share            share of the word in the text, t about 1/1000
    drawn with probability   times^¾ / Σ times^¾             so that rare words are drawn a little more often
    window                   1 … w, uniformly: near words count more than far ones

Words are dropped before the windows are formed, so that these reach further. No window crosses the end of a text, nor
the end of a chunk of a million tokens.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from cutaway.before.ngrams.counts import Ids
from cutaway.errors import InputError

CHUNK = 1 << 20  # tokens that are read at once
STRETCH = 32  # words in the middle of a stretch; around it stand as many more as the window is wide
BATCH = 4  # stretches; with more, words of one batch learn from vectors that have grown old
DRAWN = 64  # words that are drawn for a batch
SMALL = 100_000  # words, below which all have a vector, and none is passed over
NOWHERE = -1  # the document of padding


class Stretches(NamedTuple):
    """A batch: the middle words, the same with their context, which context words are in the window, and the negative
    samples; all as rows of the matrix. `done` is the number of tokens read."""

    middle: Int64[Tensor, "stretch middle"]
    around: Int64[Tensor, "stretch place"]
    near: Bool[Tensor, "stretch middle place"]
    drawn: Int64[Tensor, " drawn"]
    done: int


class SkipGramText:
    """`tokens[row]` are the tokens with a vector, the most frequent first, and `times[row]` their counts."""

    def __init__(
        self, ids: Ids, vocab_size: int, end: int | None, window: int, min_count: int | None, sample: float | None
    ) -> None:
        if not len(ids):
            raise InputError("there are no words: the text is empty")
        if ids.min() < 0 or ids.max() >= vocab_size:
            raise InputError(f"the ids {ids.min()} … {ids.max()} are not all in 0 … {vocab_size - 1}")
        self.ids, self.end, self.window = ids, end, window
        times = np.bincount(ids, minlength=vocab_size)
        times[[] if end is None else [end]] = 0
        least = min_count or (1 if len(ids) < SMALL else 5)
        order = np.argsort(-times, kind="stable")
        self.tokens = order[: (times >= least).sum()]
        if len(self.tokens) < 2:
            found, often = "1 word" if len(self.tokens) else "no word", "time" if least == 1 else "times"
            raise InputError(
                f"{found} stands in the text at least min_count={least} {often}, and two are needed: "
                + ("words are what white space parts" if least == 1 else "give it more text, or ask for fewer times")
            )
        self.times = times[self.tokens]
        self.row_of = np.full(vocab_size, -1)
        self.row_of[self.tokens] = np.arange(len(self.tokens))
        if not any(self._pairs(np.asarray(ids[lo : lo + CHUNK])) for lo in range(0, len(ids), CHUNK)):
            raise InputError(
                "no two words stand in one text, and a word learns from those beside it: part the texts in another way"
            )
        usual = 0.0 if len(ids) < SMALL else 1e-3
        self.kept = keep_probability(self.times, usual if sample is None else sample)
        self.up_to = np.cumsum(self.times**0.75) / (self.times**0.75).sum()

    def _pairs(self, chunk: Ids) -> bool:
        """Whether two words with vectors occur in one document."""
        document = np.cumsum(chunk == self.end) if self.end is not None else np.zeros(len(chunk))
        document = document[self.row_of[chunk] >= 0]
        return bool((document[1:] == document[:-1]).any())

    def draw(self, random: np.random.Generator, shape: tuple[int, ...]) -> Int64[np.ndarray, "*shape"]:
        """Negative samples, as rows."""
        return np.searchsorted(self.up_to, random.random(shape), side="right").clip(max=len(self.tokens) - 1)

    def thinned(
        self, chunk: Ids, random: np.random.Generator
    ) -> tuple[Int64[np.ndarray, " word"], Int64[np.ndarray, " word"]]:
        """The rows of the words that are kept, and the number of their documents."""
        document = np.zeros(len(chunk), np.int64) if self.end is None else np.cumsum(chunk == self.end)
        rows = self.row_of[chunk]
        known = np.flatnonzero(rows >= 0)
        kept = known[random.random(len(known)) < self.kept[rows[known]]]
        return rows[kept], document[kept]

    def stretches(self, random: np.random.Generator) -> Iterator[Stretches]:
        """The whole text once, in batches."""
        for lo in range(0, len(self.ids), CHUNK):
            chunk = np.asarray(self.ids[lo : lo + CHUNK])
            rows, document = self.thinned(chunk, random)
            if not len(rows):
                continue
            n = -(-len(rows) // STRETCH)
            width = random.integers(1, self.window + 1, (n, STRETCH))
            drawn = torch.from_numpy(self.draw(random, (-(-n // BATCH), DRAWN)))
            reach = min(self.window, int(np.bincount(document).max()))  # no text has more words to look at
            around, documents = (self._laid(each, n, fill, reach) for each, fill in ((rows, 0), (document, NOWHERE)))
            for number, first in enumerate(range(0, n, BATCH)):
                some = slice(first, first + BATCH)
                near = self._near(documents[some], torch.from_numpy(width[some]), reach)
                middle = around[some, reach : reach + STRETCH]
                yield Stretches(middle, around[some], near, drawn[number], lo + first * len(chunk) // n)

    def _laid(
        self, values: Int64[np.ndarray, " word"], n: int, fill: int, reach: int
    ) -> Int64[Tensor, "stretch place"]:
        """n stretches with their context, padded at both ends."""
        more = n * STRETCH - len(values) + reach
        filled = np.pad(values, (reach, more), constant_values=fill)
        return torch.from_numpy(filled).unfold(0, STRETCH + 2 * reach, STRETCH)

    def _near(
        self, document: Int64[Tensor, "stretch place"], width: Int64[Tensor, "stretch middle"], reach: int
    ) -> Bool[Tensor, "stretch middle place"]:
        places = torch.arange(document.shape[1]) - reach
        distance = (places - torch.arange(STRETCH)[:, None]).abs()
        own = document[:, reach : reach + STRETCH, None]
        return (distance <= width[..., None]) & (distance > 0) & (document[:, None] == own) & (own != NOWHERE)


def keep_probability(times: Int64[np.ndarray, " word"], sample: float) -> Float64[np.ndarray, " word"]:
    """The probability that a word is kept: 1 for all but the frequent ones."""
    if not sample:
        return np.ones(len(times))
    share = times / times.sum()
    return np.minimum(np.sqrt(sample / share) + sample / share, 1.0)
