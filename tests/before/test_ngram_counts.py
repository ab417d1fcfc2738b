"""Counts by sorting are counts: of every order, in memory or mapped, whatever the chunk."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.before.ngrams.counts import NgramCounts, count_ngrams, started
from cutaway.errors import CheckpointError, ConfigError, InputError

V = 5
TEXTS = st.lists(st.integers(0, V - 1), min_size=1, max_size=60)
ENDS = st.sampled_from([None, 0, V - 1])
ORDERS = st.integers(1, 7)


def texts_of(ids: list[int], end: int | None) -> list[list[int]]:
    """The texts, each behind its beginning."""
    texts = [[V]]
    for token in ids:
        texts[-1].append(token)
        if token == end:
            texts.append([V])
    return texts if len(texts[-1]) > 1 else texts[:-1]


def by_hand(ids: list[int], end: int | None, order: int) -> Counter:
    return Counter(tuple(text[i : i + order]) for text in texts_of(ids, end) for i in range(len(text) - order + 1))


def ngram(counts: NgramCounts, order: int, number: int) -> tuple[int, ...]:
    context, last = divmod(int(counts.levels[order - 1].keys[number]), V + 1)
    return (last,) if order == 1 else (*ngram(counts, order - 1, context), last)


def as_dict(counts: NgramCounts, order: int) -> dict[tuple[int, ...], int]:
    level = counts.levels[order - 1]
    return {ngram(counts, order, i): int(n) for i, n in enumerate(level.counts) if n}


def same(one: NgramCounts, other: NgramCounts) -> bool:
    pairs = [pair for levels in zip(one.levels, other.levels, strict=True) for pair in zip(*levels, strict=True)]
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


@given(TEXTS, ENDS, ORDERS)
def test_counts_are_those_by_hand(ids, end, order):
    counts = count_ngrams(np.array(ids), V, order, end=end)
    for n in range(1, order + 1):
        assert as_dict(counts, n) == by_hand(ids, end, n)


@given(TEXTS, ENDS, ORDERS)
def test_each_ngram_knows_what_is_left_without_its_first_token(ids, end, order):
    counts = count_ngrams(np.array(ids), V, order, end=end)
    for n in range(2, order + 1):
        for i, suffix in enumerate(counts.levels[n - 1].suffix):
            assert ngram(counts, n - 1, int(suffix)) == ngram(counts, n, i)[1:]


@given(TEXTS, ENDS, ORDERS)
def test_ngrams_are_sorted_and_those_that_begin_a_text_are_the_last(ids, end, order):
    counts = count_ngrams(np.array(ids), V, order, end=end)
    for n in range(1, order + 1):
        found = [ngram(counts, n, i) for i in range(len(counts.levels[n - 1].keys))]
        assert found == sorted(set(found))
        assert [g[0] == V for g in found] == [i >= counts.begun(n) for i in range(len(found))]


@given(TEXTS, ENDS, ORDERS, st.integers(1, 70))
def test_neither_the_chunk_nor_where_counts_lie_changes_anything(ids, end, order, chunk):
    wanted = count_ngrams(np.array(ids), V, order, end=end)
    assert same(count_ngrams(np.array(ids), V, order, end=end, chunk=chunk), wanted)
    with TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "ids.npy", np.array(ids, np.uint16))
        mapped = np.load(folder / "ids.npy", mmap_mode="r")
        assert same(count_ngrams(mapped, V, order, end=end, folder=folder / "counts", chunk=chunk), wanted)
        again = NgramCounts.open(folder / "counts")
        assert same(again, wanted)
        assert (again.vocab_size, again.end, again.order) == (V, end, order)
        kept = {path.name for path in (folder / "counts").iterdir()}
        assert kept == {"counts.json"} | {f"{k}{n + 1}.npy" for k in ("keys", "counts", "suffix") for n in range(order)}


@given(TEXTS, ENDS, st.integers(1, 70))
def test_each_text_starts_behind_a_token_of_its_own(ids, end, chunk):
    found = started(np.array(ids), V, end, chunk=chunk)
    assert found.tolist() == [token for text in texts_of(ids, end) for token in text]


def test_ids_may_use_all_of_their_type():
    counts = count_ngrams(np.array([255, 255, 254, 255], np.uint8), 256, 2, end=254)
    assert counts.levels[1].counts.tolist() == [1, 1, 2]  # (255, 254), (255, 255) and (<sos>, 255)


def test_what_cannot_be_counted_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="the text is empty"):
        count_ngrams(np.array([], np.int64), V, 2)
    with pytest.raises(InputError, match=r"the id 5 is not in 0 … 4"):
        count_ngrams(np.array([1, 5]), V, 2)
    with pytest.raises(InputError, match="the id -1"):
        count_ngrams(np.array([1, -1]), V, 2)
    for order in (0, 8):
        with pytest.raises(ConfigError, match=f"order={order}"):
            count_ngrams(np.array([1, 2]), V, order)
    for vocab_size in (0, 1 << 31):
        with pytest.raises(ConfigError, match=f"vocab_size={vocab_size}"):
            count_ngrams(np.array([1, 2]), vocab_size, 2)
    with pytest.raises(ConfigError, match="chunk=0"):
        count_ngrams(np.array([1, 2]), V, 2, chunk=0)
    with pytest.raises(CheckpointError, match=r"counts\.json"):
        NgramCounts.open(tmp_path)
    (tmp_path / "counts.json").write_text('{"order": 1}')
    with pytest.raises(CheckpointError, match="vocab_size"):
        NgramCounts.open(tmp_path)


def test_counts_that_were_not_finished_are_not_opened(tmp_path):
    count_ngrams(np.array([1, 2, 3]), V, 2, folder=tmp_path)
    with pytest.raises(InputError):
        count_ngrams(np.array([1, 7]), V, 2, folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"counts\.json"):
        NgramCounts.open(tmp_path)
