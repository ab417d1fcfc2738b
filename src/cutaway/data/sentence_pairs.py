"""Pairs of text parts for BERT's second question: does the second follow the first?

Each window of a document is cut in two where a sentence ends, near a random place. In half of the cases a second part
is read from another sentence's start instead: in another document, or far away where there is only one. No part reaches
beyond its document. (BERT, section 3.1; its authors' code joins sentences until a random length is reached, here a
window is cut in two: the same kind of pairs, without going through the text in order.)
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.data.batches import Batch, Sequences, Windows
from cutaway.data.order import SEGMENTS, Indices, generator
from cutaway.errors import InputError
from cutaway.tokens.tokenizer import Tokenizer

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
        """All rows at once: a loop over them would take longer than a GPU's step."""
        random = generator(self.seed, SEGMENTS, step)
        starts = self.windows.starts(step)
        follows = random.random(len(starts)) < 0.5
        begin, stop = self._longest_documents(starts)
        near, elsewhere, floor = self._draw(begin, stop, follows, random)
        window = self._read(begin)
        cut = self._cuts(window, begin, stop, near)
        asked = cut < stop
        at = np.where(asked & follows, cut, -1)  # of the second part; −1 where there is none
        other = asked & ~follows
        at[other] = self._sentence_starts(elsewhere[other], floor[other])
        first_length = cut - begin
        room = np.minimum(self.seq_len - first_length, self._documents(at)[1] - at)
        second_length = np.where(at < 0, 0, room)
        return {
            "first": self._only(window, first_length),
            "first_length": first_length,
            "second": self._only(self._read(at), second_length),
            "second_length": second_length,
            "follows": follows,
        }

    def _read(self, start: Indices) -> NDArray[Any]:
        """The `seq_len` tokens from each place on; beyond the ends of the corpus, any tokens."""
        return self.corpus.ids.take(start[:, None] + np.arange(self.seq_len), mode="clip")

    def _only(self, rows: NDArray[Any], length: Indices) -> NDArray[np.int64]:
        return np.where(np.arange(self.seq_len) < length[:, None], rows, 0).astype(np.int64)

    def _longest_documents(self, start: Indices) -> tuple[Indices, Indices]:
        """Where a window holds borders of documents, the longest of the parts between them is taken."""
        borders, stop = np.asarray(self.corpus.starts), start + self.seq_len
        first, last = np.searchsorted(borders, start, side="right"), np.searchsorted(borders, stop, side="left")
        inside = np.minimum(first[:, None] + np.arange((last - first).max() + 1), len(borders) - 1)
        cuts = np.concatenate([start[:, None], np.minimum(borders[inside], stop[:, None])], axis=1)
        longest = np.diff(cuts, axis=1).argmax(axis=1)
        row = np.arange(len(start))
        return cuts[row, longest], cuts[row, longest + 1]

    def _documents(self, at: Indices) -> tuple[Indices, Indices]:
        """Where the documents of some tokens begin and end."""
        borders = np.asarray(self.corpus.starts)
        i = np.searchsorted(borders, np.maximum(at, 0), side="right")
        return borders[i - 1], borders[i]

    def _draw(
        self, begin: Indices, stop: Indices, follows: NDArray[np.bool_], random: np.random.Generator
    ) -> tuple[Indices, Indices, Indices]:
        """Near which place each window is cut, a place in another document, or far away if there is only one, and
        before which no sentence may begin for that.

        The numbers are drawn row by row, the second only where a row needs one.
        """
        low, high = self._documents(begin)
        if len(self.corpus) == 1:
            low = np.maximum(low, begin - FAR * self.seq_len)
            high = np.minimum(high, begin + FAR * self.seq_len)
        lowest = np.stack([begin, np.zeros_like(begin)], axis=1)
        beyond = np.stack([stop, len(self.corpus.ids) - (high - low)], axis=1)
        needed = np.stack([np.ones_like(follows), ~follows], axis=1)
        drawn = np.zeros_like(lowest)
        drawn[needed] = random.integers(lowest[needed], beyond[needed])
        near, place = drawn.T
        before = place < low
        return near, np.where(before, place, place + high - low), np.where(before, 0, high)

    def _cuts(self, window: NDArray[Any], begin: Indices, stop: Indices, near: Indices) -> Indices:
        """The sentence's start nearest to a place in each window; its end where there is none."""
        place = np.arange(1, self.seq_len + 1, dtype=np.int32)
        starts = self.ends_sentence[window] & (place < (stop - begin)[:, None])
        distance = np.where(starts, np.abs(place - (near - begin).astype(np.int32)[:, None]), np.int32(self.seq_len))
        return np.where(starts.any(axis=1), begin + 1 + distance.argmin(axis=1), stop)

    def _sentence_starts(self, at: Indices, floor: Indices) -> Indices:
        """Where the sentences of some tokens begin; −1 where that is before the floor."""
        document, _ = self._documents(at)
        low = at - self.seq_len
        ends = self.ends_sentence[self._read(low)]
        ends &= low[:, None] + np.arange(self.seq_len) >= np.maximum(document, floor)[:, None]
        found = at - ends[:, ::-1].argmax(axis=1)
        for i in np.flatnonzero(~ends.any(axis=1)).tolist():  # few: a long sentence, or the first of its document
            found[i] = self._sentence_start(int(at[i]), int(floor[i]), int(document[i]))
        return found

    def _sentence_start(self, at: int, floor: int, document: int) -> int:
        """Where the sentence of a token begins, however far back."""
        lowest, reach = max(document, floor), 2 * self.seq_len
        while True:
            low = max(lowest, at - reach)
            ends = np.flatnonzero(self.ends_sentence[self.corpus.ids[low:at]])
            if len(ends):
                return low + int(ends[-1]) + 1
            if low == lowest:
                return document if document >= floor else -1
            reach *= 2


def sentence_ends(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """For each id: does a sentence end with it?"""
    return np.array([tokenizer.token(i).rstrip("Ċ▁").endswith((".", "!", "?")) for i in range(tokenizer.vocab_size)])
