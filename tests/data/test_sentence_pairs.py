"""Pairs for BERT's second question: sentences begin the second parts, and what does not follow is from elsewhere."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.data.corpus import Corpus
from cutaway.data.order import SEGMENTS, generator
from cutaway.data.sentence_pairs import FAR, SentencePairs
from cutaway.errors import InputError

LENGTHS = st.lists(st.integers(1, 60), min_size=12, max_size=30).filter(lambda lengths: sum(lengths) > 200)


def pairs(lengths: list[int], seq_len: int, rows: int = 8, seed: int = 0, sentence: int = 5) -> SentencePairs:
    """Documents whose tokens say where they are: 1000 · document + place; a sentence ends at each fifth."""
    ids = np.concatenate([1000 * i + np.arange(n) for i, n in enumerate(lengths)])
    ends = np.arange(1000 * len(lengths)) % 1000 % sentence == sentence - 1
    corpus = Corpus(ids, np.concatenate([[0], np.cumsum(lengths)]), len(ids), "")
    return SentencePairs(corpus, ends, rows=rows, seq_len=seq_len, seed=seed)


def rows(batch: dict[str, np.ndarray]) -> list[tuple[np.ndarray, np.ndarray, bool]]:
    """The parts of each row, and whether the second follows."""
    return [
        (batch["first"][i, : batch["first_length"][i]], batch["second"][i, : batch["second_length"][i]], bool(follows))
        for i, follows in enumerate(batch["follows"])
    ]


@given(LENGTHS, st.integers(0, 99), st.sampled_from([10, 20, 45]), st.sampled_from([3, 5, 17]))
def test_a_part_lies_in_one_document_and_the_second_begins_a_sentence(
    lengths: list[int], step: int, seq_len: int, sentence: int
) -> None:
    for a, b, _ in rows(pairs(lengths, seq_len, sentence=sentence)(step)):
        assert 1 <= len(a) <= len(a) + len(b) <= seq_len
        for part in (a, b):
            assert (np.diff(part) == 1).all()
        if len(b):
            assert b[0] % 1000 % sentence == 0
            assert a[-1] % 1000 % sentence == sentence - 1
            ends_document = b[-1] % 1000 == lengths[b[-1] // 1000] - 1
            assert len(a) + len(b) == seq_len or ends_document


@given(LENGTHS, st.integers(0, 99))
def test_what_follows_follows_and_what_does_not_is_from_another_document(lengths: list[int], step: int) -> None:
    """Also where the first part was taken from the second document of its window."""
    for a, b, follows in rows(pairs(lengths, 20)(step)):
        if len(b):
            assert b[0] == a[-1] + 1 if follows else a[0] // 1000 != b[0] // 1000


@given(st.integers(130, 1000), st.integers(0, 20), st.sampled_from([3, 5, 17, 37]))
def test_in_one_document_it_is_from_far_away(n: int, step: int, sentence: int) -> None:
    for a, b, follows in rows(pairs([n], 20, sentence=sentence)(step)):
        if len(b) and not follows:
            assert b[0] - a[0] >= 60 or a[0] - b[-1] > 40
            assert b[0] % sentence == 0


@given(LENGTHS, st.integers(0, 99), st.integers(0, 5))
def test_a_step_depends_on_the_seed_and_its_number_alone(lengths: list[int], step: int, seed: int) -> None:
    one, other = pairs(lengths, 20, seed=seed), pairs(lengths, 20, seed=seed)
    other(step + 1)
    ours, theirs = one(step), other(step)
    assert all((ours[name] == theirs[name]).all() for name in ours)
    assert any((ours[name] != one(step + 1)[name]).any() for name in ours)


def one_by_one(source: SentencePairs, step: int) -> list[tuple[np.ndarray, np.ndarray, bool]]:
    """The rows of a step, each drawn and cut by itself: what `SentencePairs` does for all of them at once."""
    ids, borders, n = source.corpus.ids, source.corpus.starts.tolist(), source.seq_len
    sentences = [i + 1 for i in range(len(ids)) if source.ends_sentence[ids[i]]]  # where they begin
    random = generator(source.seed, SEGMENTS, step)
    starts = source.windows.starts(step).tolist()
    made: list[tuple[np.ndarray, np.ndarray, bool]] = []
    for start, follows in zip(starts, (random.random(len(starts)) < 0.5).tolist(), strict=True):
        cuts = [start, *(border for border in borders if start < border < start + n), start + n]
        begin, stop = max(pairwise(cuts), key=lambda part: part[1] - part[0])
        near = int(random.integers(begin, stop))
        cut = min((s for s in sentences if begin < s < stop), key=lambda s: abs(s - near), default=stop)
        at = cut
        if not follows:
            low, high = max(b for b in borders if b <= begin), min(b for b in borders if b > begin)
            if len(borders) == 2:
                low, high = max(low, begin - FAR * n), min(high, begin + FAR * n)
            place = int(random.integers(len(ids) - (high - low)))
            place, floor = (place, 0) if place < low else (place + high - low, high)
            document = max(b for b in borders if b <= place)
            at = max(s for s in [-1, document, *sentences] if s <= place and (s >= max(document, floor) or s == -1))
        if cut == stop or at < 0:
            made.append((ids[begin:cut], ids[:0], follows))
            continue
        end = min(at + n - (cut - begin), min(b for b in borders if b > at))
        made.append((ids[begin:cut], ids[at:end], follows))
    return made


@given(
    st.one_of(LENGTHS, st.lists(st.integers(300, 600), min_size=1, max_size=2)),
    st.integers(0, 99),
    st.sampled_from([10, 20, 45]),
    st.sampled_from([3, 5, 17, 150]),
)
def test_all_rows_at_once_are_what_each_would_be_by_itself(
    lengths: list[int], step: int, seq_len: int, sentence: int
) -> None:
    """The same random numbers in the same order: what a seed gave before rows were made together, it gives still."""
    try:
        source = pairs(lengths, seq_len, sentence=sentence)
    except InputError:
        return  # nothing could follow
    for ours, theirs in zip(rows(source(step)), one_by_one(source, step), strict=True):
        assert [part.tolist() for part in ours[:2]] == [part.tolist() for part in theirs[:2]]
        assert ours[2] == theirs[2]


@pytest.mark.parametrize("lengths", [[900], [150] * 6, [40, 60] * 9])
def test_half_of_those_that_are_asked_follow(lengths: list[int]) -> None:
    """6,000 rows; and long seconds are no sign of either answer: their mean lengths differ by less than a tenth."""
    source = pairs(lengths, 20, rows=60)
    asked = [(follows, len(b)) for step in range(100) for _, b, follows in rows(source(step)) if len(b)]
    follows, n = np.array(asked).T
    assert len(asked) > 5000
    assert abs(follows.mean() - 0.5) < 5 * 0.5 / len(asked) ** 0.5 + 0.01
    assert 0.9 < n[follows == 1].mean() / n[follows == 0].mean() < 1.1


def test_a_window_without_a_sentence_end_asks_nothing() -> None:
    source = pairs([100] * 10, 10, rows=30, sentence=50)
    seen = rows(source(0))
    assert any(len(b) == 0 for _, b, _ in seen)
    for a, b, _ in seen:
        assert len(b) or not (a[:-1] % 50 == 49).any()


def test_where_nothing_could_follow_or_not_follow_is_refused() -> None:
    with pytest.raises(InputError, match=r"one document of 120 tokens has nothing far from a window of 20"):
        pairs([120], 20)
    with pytest.raises(InputError, match=r"no document has two sentences within 20 tokens"):
        pairs([5] * 50, 20)
