"""Pairs of text parts for BERT's second question: does the second follow the first?

Each window of a document is cut in two where a sentence ends, near a random place. In half of the cases a second part
is read from another sentence's start instead: in another document, or far away where there is only one. No part reaches
beyond its document. (BERT, section 3.1; its authors' code joins sentences until a random length is reached, here a
window is cut in two: the same kind of pairs, without going through the text in order.)
"""

import numpy as np
from numpy.typing import NDArray

from cutaway.data.batches import Batch, Sequences, Windows
from cutaway.data.order import SEGMENTS, generator
from cutaway.errors import InputError

FAR = 3  # windows: from so far away a second part may come in a text that is one document


class SentencePairs:
    """Batches of `first`, `second`, their lengths, and `follows`; both parts together have at most `seq_len` tokens.

    A window in which no sentence ends is all `first`, and its row asks no second question: `second` is empty.
    """

    def __init__(
        self,
        corpus: Sequences,
        ends_sentence: NDArray[np.bool_],
        *,
        rows: int,
        seq_len: int,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        self.windows = Windows(corpus, rows=rows, seq_len=seq_len, seed=seed, shuffle=shuffle, borders=True)
        self.corpus, self.ends_sentence, self.seq_len, self.seed = corpus, ends_sentence, seq_len, seed
        self.steps, self.n_examples = self.windows.steps, self.windows.n_examples
        if len(corpus) == 1 and len(corpus.ids) <= 2 * FAR * seq_len:
            raise InputError(
                f"one document of {len(corpus.ids):,} tokens has nothing far from a window of {seq_len}, and so nothing"
                f" that does not follow: give more text, more documents (data.split), or a smaller seq_len"
            )
        if not any(self(step)["second_length"].any() for step in range(min(100, self.steps))):
            raise InputError(
                f"no document has two sentences within {seq_len} tokens: there is nothing that could follow"
            )

    def __call__(self, step: int) -> Batch:
        random = generator(self.seed, SEGMENTS, step)
        starts = self.windows.starts(step)
        rows = len(starts)
        first, second = (np.zeros((rows, self.seq_len), dtype=np.int64) for _ in range(2))
        lengths, follows = np.zeros((2, rows), dtype=np.int64), random.random(rows) < 0.5
        for row, start in enumerate(starts.tolist()):
            begin, stop = self._longest_document(start, start + self.seq_len)
            cut = self._cut(begin, stop, random)
            at = cut if follows[row] else self._elsewhere(begin, random)
            a, b = self.corpus.ids[begin:cut], self.corpus.ids[:0]
            if cut < stop and at is not None:
                b = self.corpus.ids[at : min(at + self.seq_len - len(a), self._document(at)[1])]
            first[row, : len(a)], second[row, : len(b)] = a, b
            lengths[:, row] = len(a), len(b)
        return {
            "first": first,
            "first_length": lengths[0],
            "second": second,
            "second_length": lengths[1],
            "follows": follows,
        }

    def _longest_document(self, start: int, stop: int) -> tuple[int, int]:
        """Where a window holds a border of documents, the larger side of that border is taken."""
        borders = np.asarray(self.corpus.starts)
        inside = borders[np.searchsorted(borders, start, side="right") : np.searchsorted(borders, stop, side="left")]
        cuts = np.concatenate([[start], inside, [stop]])
        longest = int(np.diff(cuts).argmax())
        return int(cuts[longest]), int(cuts[longest + 1])

    def _document(self, at: int) -> tuple[int, int]:
        """Where the document of a token begins and ends."""
        i = int(np.searchsorted(self.corpus.starts, at, side="right"))
        return int(self.corpus.starts[i - 1]), int(self.corpus.starts[i])

    def _cut(self, begin: int, stop: int, random: np.random.Generator) -> int:
        """The sentence's start nearest to a random place between the two; `stop` where there is none."""
        wanted = int(random.integers(begin, stop))
        starts = begin + 1 + np.flatnonzero(self.ends_sentence[self.corpus.ids[begin : stop - 1]])
        return int(starts[np.abs(starts - wanted).argmin()]) if len(starts) else stop

    def _elsewhere(self, begin: int, random: np.random.Generator) -> int | None:
        """A sentence's start that is not in this document, or, if it is the only one, not near."""
        low, high = self._document(begin)
        if len(self.corpus) == 1:
            low, high = max(low, begin - FAR * self.seq_len), min(high, begin + FAR * self.seq_len)
        at = int(random.integers(len(self.corpus.ids) - (high - low)))
        at, floor = (at, 0) if at < low else (at + high - low, high)
        return self._sentence_start(at, floor)

    def _sentence_start(self, at: int, floor: int) -> int | None:
        """Where the sentence of a token begins; None if that is before the floor."""
        document, _ = self._document(at)
        lowest, reach = max(document, floor), self.seq_len
        while True:
            low = max(lowest, at - reach)
            ends = np.flatnonzero(self.ends_sentence[self.corpus.ids[low:at]])
            if len(ends):
                return low + int(ends[-1]) + 1
            if low == lowest:
                return document if document >= floor else None
            reach *= 2
