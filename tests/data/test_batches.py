"""Batches: every example once an epoch, nothing but the step decides, padding is what it should be."""

import time
from collections.abc import Callable
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.data.batches import Examples, ImageBatches, Pairs, Windows, longest_first, padded_batch
from cutaway.data.buckets import Buckets, join_shapes
from cutaway.data.order import shuffled
from cutaway.errors import InputError

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=80)


class SimpleCorpus(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.starts) - 1


def corpus(lengths: list[int]) -> SimpleCorpus:
    """Sequences whose tokens say where they are: 1000 · sequence + place."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return SimpleCorpus(ids=np.concatenate([1000 * i + np.arange(n) for i, n in enumerate(lengths)]), starts=starts)


@given(st.integers(30, 300), st.integers(1, 9), st.integers(1, 12), st.integers(0, 5))
def test_windows_show_every_place_once_an_epoch(n: int, seq_len: int, rows: int, seed: int) -> None:
    windows = Windows(corpus([n]), rows=rows, seq_len=seq_len, seed=seed)
    for epoch in range(2):
        places = range(epoch * windows.n_examples, (epoch + 1) * windows.n_examples)
        seen = np.concatenate([windows(place // rows)["text"][place % rows, :-1] for place in places])
        assert len(set(seen.tolist())) == len(seen) == windows.n_examples * seq_len
        assert n - len(seen) <= 2 * seq_len


@settings(max_examples=40)
@given(st.integers(2000, 2_000_000), st.integers(64, 1024), st.integers(20, 200), st.integers(0, 5), st.integers(0, 9))
def test_every_window_comes_once_an_epoch_however_long_the_text(
    n: int, seq_len: int, rows: int, seed: int, epoch: int
) -> None:
    text = SimpleCorpus(ids=np.broadcast_to(np.uint8(0), n), starts=np.array([0, n]))
    windows = Windows(text, rows=rows, seq_len=seq_len, seed=seed)
    first, stop = epoch * windows.n_examples, (epoch + 1) * windows.n_examples
    steps = range(first // rows, -(-stop // rows))
    starts = np.concatenate([windows.starts(step) for step in steps])[first - steps[0] * rows :][: windows.n_examples]
    assert (np.diff(np.sort(starts)) == seq_len).all()
    assert 0 <= starts.min() <= starts.max() < n - seq_len
    assert n - windows.n_examples * seq_len <= 2 * seq_len
    assert windows.n_examples < 20 or (np.diff(starts) != seq_len).any()


@pytest.mark.parametrize("n", [2049, 2048, 2100])
def test_no_two_epochs_are_cut_alike(n: int) -> None:
    windows = Windows(corpus([n]), rows=1, seq_len=64)
    cuts = {int(windows.starts(epoch * windows.n_examples)[0]) % 64 for epoch in range(40)}
    assert len(cuts) > 20


@pytest.mark.parametrize("n", range(30, 38))
def test_the_first_cut_may_be_wherever_all_windows_still_fit(n: int) -> None:
    windows = Windows(corpus([n]), rows=1, seq_len=4)
    seen, last = set(), set()
    for epoch in range(200):
        first = epoch * windows.n_examples
        starts = [int(windows.starts(step)[0]) for step in range(first, first + windows.n_examples)]
        seen.add(min(starts))
        last.add(max(starts) + 4)  # the token after the window is read, too
    assert seen == set(range(max(seen) + 1))
    assert max(last) == n - 1


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


@given(LENGTHS, st.integers(60, 400), st.integers(1, 5), st.none() | st.integers(1, 12))
def test_a_bucket_has_as_few_batches_as_it_can_and_no_row_that_nobody_needs(
    lengths: list[int], tokens: int, multiple: int, most_rows: int | None
) -> None:
    """Also a small one, whose examples are no multiple of the parts: they are filled up to one."""
    for bucket in Buckets([np.array(lengths)], tokens=tokens, multiple=multiple, most_rows=most_rows).buckets:
        n, fit = len(bucket.examples), min(tokens // bucket.widths[0], most_rows or tokens)
        most = max(fit // multiple * multiple, multiple)
        assert bucket.n_batches == -(-n // most)
        assert bucket.rows == min(most, -(-n // multiple) * multiple)


def joined_slowly(shapes: list[tuple[int, ...]], counts: list[int], most: int) -> list[tuple[int, ...]]:
    """The cheapest pair of all is joined, and again, until few enough are left."""
    groups = {shape: (n, [i]) for i, (shape, n) in enumerate(zip(shapes, counts, strict=True))}

    def extra(a: tuple[int, ...], b: tuple[int, ...]) -> int:
        both = sum(map(max, a, b))
        return groups[a][0] * (both - sum(a)) + groups[b][0] * (both - sum(b))

    while len(groups) > most:
        a, b = min(combinations(sorted(groups), 2), key=lambda pair: extra(*pair))
        (n, in_a), (m, in_b) = groups.pop(a), groups.pop(b)
        k, members = groups.get(tuple(map(max, a, b)), (0, []))
        groups[tuple(map(max, a, b))] = (n + m + k, in_a + in_b + members)
    of = {i: shape for shape, (_, members) in groups.items() for i in members}
    return [of[i] for i in range(len(shapes))]


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_shapes_are_joined_as_by_looking_at_all_pairs(columns: int) -> None:
    for seed in range(300):
        random = np.random.default_rng(seed)
        shapes = np.unique(random.integers(1, random.integers(3, 20), (random.integers(1, 25), columns)), axis=0)
        counts, most = random.integers(1, 4, len(shapes)), int(random.integers(1, 4))
        ours = join_shapes(shapes, counts, most)
        theirs = joined_slowly(list(map(tuple, shapes.tolist())), counts.tolist(), most)
        assert ours.tolist() == list(map(list, theirs))
        assert (ours >= shapes).all()
        assert len(np.unique(ours, axis=0)) <= most


@pytest.mark.parametrize("columns", [1, 2])
def test_two_thousand_shapes_are_joined_in_seconds(columns: int) -> None:
    """About one; looking at all pairs each time would take an hour."""
    random = np.random.default_rng(0)
    shapes = np.unique(random.integers(1, 50_000, (2100, columns)), axis=0)[:2000]
    assert len(shapes) == 2000
    start = time.perf_counter()
    joined = join_shapes(shapes, random.integers(1, 100, 2000), 16)
    assert time.perf_counter() - start < 20
    assert len(np.unique(joined, axis=0)) == 16


def test_an_example_that_fits_no_batch_is_refused() -> None:
    with pytest.raises(InputError, match="50 tokens does not fit into a batch of 40"):
        Buckets([np.array([3, 50])], tokens=40)


@given(LENGTHS, st.integers(1, 70), st.data())
def test_padded_rows_hold_the_sequences_and_zeros(lengths: list[int], width: int, data: st.DataObject) -> None:
    text = corpus(lengths)
    wanted = np.array(data.draw(st.lists(st.integers(-1, len(lengths) - 1), min_size=1, max_size=6)))
    rows, n = padded_batch(text, wanted, width)
    for row, length, example in zip(rows, n, wanted.tolist(), strict=True):
        true = [] if example < 0 else text.ids[text.starts[example] : text.starts[example + 1]][:width].tolist()
        assert row[:length].tolist() == true
        assert not row[length:].any()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1), st.integers(0, 40))
def test_the_longer_of_two_is_cut_first(lengths: list[tuple[int, int]], room: int) -> None:
    """Nothing is cut without need, and no more than is needed; what is cut is left no shorter than the other."""
    for row, kept in zip(lengths, longest_first(np.array(lengths), room).tolist(), strict=True):
        assert sum(kept) == min(sum(row), room)
        for n, k, other in zip(row, kept, reversed(kept), strict=True):
            assert 0 <= k <= n
            assert k == n or k >= other - 1
    alone = longest_first(np.array(lengths)[:, :1], room)
    assert alone.tolist() == [[min(a, room)] for a, _ in lengths]


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 24))
def test_tokens_go_one_at_a_time_off_the_longer_text_and_of_two_alike_off_the_second(
    first: int, second: int, room: int
) -> None:
    kept = [first, second]
    while sum(kept) > room:
        kept[kept[0] <= kept[1]] -= 1
    assert longest_first(np.array([[first, second]]), room).tolist() == [kept]


@settings(max_examples=40)
@given(LENGTHS, LENGTHS, st.integers(5, 70), st.integers(0, 3), st.integers(0, 3))
def test_pairs_share_a_row(a: list[int], b: list[int], longest: int, extra: int, seed: int) -> None:
    n = min(len(a), len(b))
    lengths = np.stack([a[:n], b[:n]], axis=1)
    first, second = corpus(a[:n]), corpus(b[:n])
    pairs = Pairs(first, second, np.arange(n) * 10, extra=extra, longest=longest, tokens=300, seed=seed)
    kept = longest_first(lengths, longest - extra)
    assert pairs.cut == (lengths.sum(axis=1) > longest - extra).sum()
    seen = []
    for step in range(pairs.steps):
        batch = pairs(step)
        width = batch["first"].shape[1]
        assert batch["second"].shape[1] == width <= longest - extra
        for row, i in enumerate(batch["example"].tolist()):
            for text, name, k in ((first, "first", 0), (second, "second", 1)):
                length = batch[f"{name}_length"][row]
                assert length == (kept[i, k] if i >= 0 else 0)
                assert batch[name][row, :length].tolist() == text.ids[text.starts[max(i, 0)] :][:length].tolist()
                assert not batch[name][row, length:].any()
            assert batch["first_length"][row] + batch["second_length"][row] <= width
            if i >= 0:
                assert batch["label"][row] == 10 * i
                seen.append(i)
    assert sorted(seen) == list(range(n))


def test_pairs_without_room_are_refused() -> None:
    with pytest.raises(InputError, match="rows of 4 tokens, 3 of them special, have no room for two texts"):
        Pairs(corpus([3]), corpus([3]), np.arange(1), extra=3, longest=4, tokens=99)
    batch = Pairs(corpus([3]), corpus([3]), np.arange(1), extra=3, longest=5, tokens=99)(0)
    assert (batch["first_length"].tolist(), batch["second_length"].tolist()) == ([1], [1])


def test_examples_that_are_cut_are_counted() -> None:
    texts = {"source": corpus([3, 9, 5, 9]), "target": corpus([8, 2, 9, 9])}
    examples = Examples(texts, tokens=64, extra={"source": 1}, longest={"source": 8, "target": 8})
    assert examples.cut == 3
    assert Examples(texts, tokens=64).cut == 0


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
    pictures = ImageBatches(pixels, np.arange(10), rows=4, seed=1)
    seen = np.concatenate([pictures(step)["image"].ravel() for step in range(5)])
    assert sorted(seen[:10].tolist()) == sorted(seen[10:].tolist()) == list(range(10))


def bucketed(lengths: list[int], **options: object) -> Callable[[int], tuple[int, list[int]]]:
    buckets = Buckets([np.array(lengths)], **options)
    return lambda step: (buckets.steps, buckets.rows_of(step)[1].tolist())


def from_source(source: object, name: str) -> Callable[[int], tuple[int, list[int]]]:
    return lambda step: (source.steps, source(step)[name][:, :1].ravel().tolist())  # type: ignore[attr-defined]


ORDERED: dict[str, Callable[..., Callable[[int], tuple[int, list[int]]]]] = {
    "one bucket": lambda **options: bucketed([4] * 96, tokens=32, **options),
    "several buckets": lambda **options: bucketed([4, 16] * 48, tokens=64, **options),
    "a table": lambda **options: from_source(Examples({"text": corpus([3] * 96)}, tokens=32, **options), "text"),
    "pairs": lambda **options: from_source(
        Pairs(corpus([3] * 96), corpus([2] * 96), np.zeros(96), extra=3, longest=32, tokens=64, **options), "first"
    ),
    "windows": lambda **options: from_source(Windows(corpus([96 * 4]), rows=8, seq_len=4, **options), "text"),
    "pictures": lambda **options: from_source(
        ImageBatches(np.arange(96, dtype=np.uint8)[:, None, None, None], np.arange(96), rows=8, **options), "image"
    ),
}


@pytest.mark.parametrize("kind", ORDERED)
def test_who_stands_beside_whom_is_another_matter_in_every_epoch_and_for_every_seed(kind: str) -> None:
    """Not only the order of the batches: rows that always met would always be learnt from together."""

    def batches(epoch: int, **options: object) -> list[list[int]]:
        read = ORDERED[kind](**options)
        steps, _ = read(0)
        return [read(epoch * steps + step)[1] for step in range(steps)]

    met = [{frozenset(rows) for rows in batches(epoch, seed=seed)} for epoch, seed in ((0, 0), (1, 0), (2, 0), (0, 1))]
    for i, one in enumerate(met):
        assert len(one) >= 8
        assert all(len(one & other) <= 1 for other in met[:i])
    plain = batches(0, shuffle=False)
    assert plain == batches(0, shuffle=False, seed=3)
    within = [row for rows in plain for row in rows if kind != "several buckets" or row % 2 == 0]
    assert within == sorted(within)


def test_two_buckets_have_orders_of_their_own() -> None:
    buckets = Buckets([np.array([4] * 64 + [16] * 64)], tokens=16, seed=0)
    seen: dict[bool, list[int]] = {False: [], True: []}
    at = {False: {}, True: {}}
    for step in range(buckets.steps):
        place = int(shuffled(np.array([step]), buckets.steps, 0, 2, 0)[0])
        bucket, examples = buckets.rows_of(step)
        at[bucket.widths == (16,)][place] = examples.tolist()
    for which, rows in at.items():
        seen[which] = [int(i) % 64 for place in sorted(rows) for i in rows[place] if i >= 0]
    assert sorted(seen[False]) == sorted(seen[True]) == list(range(64))
    assert sum(a == b for a, b in zip(seen[False], seen[True], strict=True)) < 10
