"""Pairs for BERT's second question: what does not follow comes from another document."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cutaway.data.corpus import Corpus
from cutaway.data.sentence_pairs import SentencePairs


def pairs(lengths: list[int], seq_len: int, rows: int = 8) -> SentencePairs:
    """Documents whose tokens say where they are: 1000 · document + place; a sentence ends at each fifth."""
    ids = np.concatenate([1000 * i + np.arange(n) for i, n in enumerate(lengths)])
    ends = np.arange(1000 * len(lengths)) % 5 == 4
    corpus = Corpus(ids, np.concatenate([[0], np.cumsum(lengths)]), len(ids), "")
    return SentencePairs(corpus, ends, rows=rows, seq_len=seq_len, seed=0)


@given(st.lists(st.integers(10, 30), min_size=12, max_size=30), st.integers(0, 99))
def test_what_does_not_follow_is_from_another_document(lengths: list[int], step: int) -> None:
    """Also where the first part was taken from the second document of its window."""
    batch = pairs(lengths, 20)(step)
    for row in range(8):
        a, b = (batch[name][row, : batch[f"{name}_length"][row]] for name in ("first", "second"))
        assert len(set((a // 1000).tolist())) == 1
        if not batch["follows"][row]:
            assert not set((a // 1000).tolist()) & set((b // 1000).tolist())
        elif len(b):
            assert b[0] == a[-1] + 1
            assert (np.diff(np.concatenate([a, b])) == 1).all()


def test_in_one_document_it_is_from_far_away() -> None:
    source = pairs([1000], 20)
    for step in range(20):
        batch = source(step)
        for row in np.flatnonzero(~batch["follows"]):
            a, b = (batch[name][row, : batch[f"{name}_length"][row]] for name in ("first", "second"))
            assert b[0] - a[0] >= 40 or a[0] - b[-1] > 40
