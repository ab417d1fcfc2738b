"""Batches: every example once an epoch, nothing but the step decides, padding is what it should be."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.data.batches import Buckets, Examples, Pictures, Windows, padded
from cutaway.data.sentence_pairs import SentencePairs
from cutaway.errors import InputError

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=80)


def corpus(lengths: list[int]) -> SimpleNamespace:
    """Sequences whose tokens say where they are: 1000 · sequence + place."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.concatenate([1000 * i + np.arange(n) for i, n in enumerate(lengths)])

    class Corpus(SimpleNamespace):
        def __len__(self) -> int:
            return len(lengths)

    return Corpus(ids=ids, starts=starts)


@given(st.integers(30, 300), st.integers(1, 9), st.integers(1, 12), st.integers(0, 5))
def test_windows_show_every_place_once_an_epoch(n: int, seq_len: int, rows: int, seed: int) -> None:
    windows = Windows(corpus([n]), rows=rows, seq_len=seq_len, seed=seed)
    for epoch in range(2):
        places = range(epoch * windows.n_examples, (epoch + 1) * windows.n_examples)
        seen = np.concatenate([windows(place // rows)["text"][place % rows, :-1] for place in places])
        assert len(set(seen.tolist())) == len(seen) == windows.n_examples * seq_len
        assert n - len(seen) <= seq_len + 1


@given(st.integers(30, 300), st.integers(1, 9), st.integers(0, 50))
def test_a_window_is_consecutive_text(n: int, seq_len: int, step: int) -> None:
    text = Windows(corpus([n]), rows=3, seq_len=seq_len, seed=1)(step)["text"]
    assert text.shape == (3, seq_len + 1)
    assert (np.diff(text, axis=1) == 1).all()


@given(st.lists(st.integers(1, 20), min_size=2, max_size=20), st.integers(0, 20))
def test_documents_of_a_row_are_told_apart(lengths: list[int], step: int) -> None:
    if sum(lengths) < 12:
        return
    batch = Windows(corpus(lengths), rows=2, seq_len=8, seed=0)(step)
    true = batch["text"] // 1000
    if "document" in batch:
        said = batch["document"]
        assert ((np.diff(said, axis=1) != 0) == (np.diff(true, axis=1) != 0)).all()
    else:
        assert (true == true[:, :1]).all()


def test_too_little_text_is_refused_with_both_numbers() -> None:
    with pytest.raises(InputError, match=r"5 tokens.*seq_len=8"):
        Windows(corpus([5]), rows=1, seq_len=8)


@settings(max_examples=60)
@given(LENGTHS, st.integers(60, 400), st.integers(0, 3), st.booleans())
def test_buckets_show_every_example_once_an_epoch(lengths: list[int], tokens: int, seed: int, shuffle: bool) -> None:
    buckets = Buckets([np.array(lengths)], tokens=tokens, seed=seed, shuffle=shuffle)
    for epoch in range(2):
        seen: list[int] = []
        for step in range(epoch * buckets.steps, (epoch + 1) * buckets.steps):
            bucket, examples = buckets.rows_of(step)
            there = examples[examples >= 0]
            assert len(examples) == bucket.rows
            assert bucket.rows * bucket.widths[0] <= max(tokens, bucket.widths[0])
            assert all(lengths[i] <= bucket.widths[0] for i in there)
            seen += there.tolist()
        assert sorted(seen) == list(range(len(lengths)))


@settings(max_examples=40)
@given(LENGTHS, LENGTHS, st.integers(1, 6))
def test_there_are_no_more_shapes_than_allowed(a: list[int], b: list[int], most: int) -> None:
    n = min(len(a), len(b))
    buckets = Buckets([np.array(a[:n]), np.array(b[:n])], tokens=512, most_shapes=most)
    assert len({bucket.widths for bucket in buckets.buckets}) <= most
    for bucket in buckets.buckets:
        assert all(a[i] <= bucket.widths[0] and b[i] <= bucket.widths[1] for i in bucket.examples)


@given(LENGTHS, st.integers(1, 4))
def test_rows_divide_into_parts(lengths: list[int], multiple: int) -> None:
    buckets = Buckets([np.array(lengths)], tokens=300, multiple=multiple)
    assert all(bucket.rows % multiple == 0 for bucket in buckets.buckets)


def test_an_example_that_fits_no_batch_is_refused() -> None:
    with pytest.raises(InputError, match="50 tokens does not fit a batch of 40"):
        Buckets([np.array([3, 50])], tokens=40)


@given(LENGTHS, st.integers(1, 70), st.data())
def test_padded_rows_hold_the_sequences_and_zeros(lengths: list[int], width: int, data: st.DataObject) -> None:
    text = corpus(lengths)
    wanted = np.array(data.draw(st.lists(st.integers(-1, len(lengths) - 1), min_size=1, max_size=6)))
    rows, n = padded(text, wanted, width)
    for row, length, example in zip(rows, n, wanted.tolist(), strict=True):
        true = [] if example < 0 else text.ids[text.starts[example] : text.starts[example + 1]][:width].tolist()
        assert row[:length].tolist() == true
        assert not row[length:].any()


def test_examples_bring_their_labels_along() -> None:
    text = corpus([3, 7, 2, 9, 4])
    examples = Examples({"text": text}, np.array([10, 11, 12, 13, 14]), tokens=24, extra={"text": 2}, seed=3)
    seen = {}
    for step in range(examples.steps):
        batch = examples(step)
        for i, row, label in zip(batch["example"], batch["text"], batch["label"], strict=True):
            if i >= 0:
                assert row[0] == 1000 * i
                seen[int(i)] = int(label)
    assert seen == {i: 10 + i for i in range(5)}


def test_pictures_come_once_an_epoch() -> None:
    pixels = np.arange(10, dtype=np.uint8).reshape(10, 1, 1, 1)
    pictures = Pictures(pixels, np.arange(10), rows=4, seed=1)
    seen = np.concatenate([pictures(step)["image"].ravel() for step in range(5)])
    assert sorted(seen[:10].tolist()) == sorted(seen[10:].tolist()) == list(range(10))


@given(st.lists(st.integers(30, 60), min_size=1, max_size=4), st.integers(0, 10))
def test_half_of_the_second_parts_follow(lengths: list[int], step: int) -> None:
    text = corpus(lengths)
    ends = np.zeros(int(text.ids.max()) + 1, dtype=bool)
    ends[text.ids[text.ids % 5 == 4]] = True
    batch = SentencePairs(text, ends, rows=8, seq_len=20, seed=0)(step)
    for row in range(8):
        a = batch["first"][row, : batch["first_length"][row]]
        b = batch["second"][row, : batch["second_length"][row]]
        assert len(a) + len(b) <= 20
        assert len(set((a // 1000).tolist())) == 1
        if batch["follows"][row] and len(b):
            assert b[0] == a[-1] + 1
            assert ends[a[-1]] or not ends[np.concatenate([a, b])[:-1]].any()


def test_about_half_of_the_pairs_do_not_follow() -> None:
    pairs = SentencePairs(corpus([400, 400]), np.zeros(2000, dtype=bool), rows=16, seq_len=10, seed=0)
    follows = np.concatenate([pairs(step)["follows"] for step in range(40)])
    assert 0.4 < follows.mean() < 0.6
