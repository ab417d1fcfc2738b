"""Pairs of text parts for BERT's second question: does the second follow the first?

Each window of a document is cut in two where a sentence ends, near a random place. In half of the cases the second part
is taken from somewhere else instead. (BERT, section 3.1; its authors' code joins sentences until a random length is
reached, here a window is cut until two parts remain: the same kind of pairs, without going through the text in order.)
"""

import numpy as np
from numpy.typing import NDArray

from cutaway.data.batches import SEGMENTS, Batch, Sequences, Windows
from cutaway.data.order import generator


class SentencePairs:
    """Batches of `first`, `second`, their lengths, and `follows`; both parts together have `seq_len` tokens."""

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

    def __call__(self, step: int) -> Batch:
        random = generator(self.seed, SEGMENTS, step)
        starts = self.windows.starts(step)
        rows = len(starts)
        first, second = (np.zeros((rows, self.seq_len), dtype=np.int64) for _ in range(2))
        lengths, follows = np.zeros((2, rows), dtype=np.int64), random.random(rows) < 0.5
        for row, start in enumerate(starts.tolist()):
            begin, stop = self._longest_document(start, start + self.seq_len)
            a, b = self._parts(self.corpus.ids[begin:stop].astype(np.int64), random)
            if not follows[row]:
                b = self._elsewhere(begin, len(b), random)
            first[row, : len(a)], second[row, : len(b)] = a, b
            lengths[:, row] = len(a), len(b)
        return {
            "first": first,
            "first_length": lengths[0],
            "second": second,
            "second_length": lengths[1],
            "follows": follows,
        }

    def _parts(
        self, window: NDArray[np.int64], random: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A window in two parts."""
        n = len(window)
        if n < 2:
            return window, window[:0]
        wanted = int(random.integers(1, n))
        borders = np.flatnonzero(self.ends_sentence[window[: n - 1]]) + 1
        cut = int(borders[np.abs(borders - wanted).argmin()]) if len(borders) else wanted
        return window[:cut], window[cut:]

    def _longest_document(self, start: int, stop: int) -> tuple[int, int]:
        """Where a window holds a border of documents, the larger side of that border is taken."""
        borders = np.asarray(self.corpus.starts)
        inside = borders[np.searchsorted(borders, start, side="right") : np.searchsorted(borders, stop, side="left")]
        cuts = np.concatenate([[start], inside, [stop]])
        longest = int(np.diff(cuts).argmax())
        return int(cuts[longest]), int(cuts[longest + 1])

    def _elsewhere(self, begin: int, n: int, random: np.random.Generator) -> NDArray[np.int64]:
        """As many tokens from another place: outside of the first part's document, if there is another."""
        total = len(self.corpus.ids)
        borders = np.asarray(self.corpus.starts)
        own = int(np.searchsorted(borders, begin, side="right"))
        near, far = int(borders[own - 1]), int(borders[own])
        if len(borders) <= 2:
            near, far = begin - 2 * self.seq_len, begin + 2 * self.seq_len
        at = 0
        for _ in range(8):  # almost always the first try does
            at = int(random.integers(0, max(1, total - n)))
            if at + n <= near or at >= far:
                break
        return self.corpus.ids[at : at + n].astype(np.int64)
