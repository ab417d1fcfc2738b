"""Skip-gram: its slopes against autograd and against the formula written out; what is drawn, kept and near; what is
learnt from a text whose structure is known."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.before.options import SkipGramOptions
from cutaway.before.vectors import skip_gram_text
from cutaway.before.vectors.skip_gram import SkipGram, loss, move, slopes, train_skip_gram
from cutaway.before.vectors.skip_gram_text import STRETCH, SkipGramText, keep_probability
from cutaway.checkpoints.word_vectors import is_word_vectors
from cutaway.errors import InputError
from cutaway.inside.word_vectors import WordVectors

SEEDS = st.integers(0, 1000)


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int]:
    random = torch.Generator().manual_seed(seed)
    sizes = ((2, 4, 3), (2, 6, 3), (5, 3))
    v, u, drawn = (torch.randn(*size, generator=random, dtype=torch.float64).requires_grad_() for size in sizes)
    return v, u, drawn, torch.rand(2, 4, 6, generator=random) < 0.4, 3


@given(SEEDS)
def test_the_loss_is_that_of_its_pairs_one_by_one(seed):
    v, u, drawn, near, negatives = batch(seed)
    total = 0.0
    for s, i, j in near.nonzero().tolist():
        total -= math.log(1 / (1 + math.exp(-(v[s, i] @ u[s, j]).item())))
        missed = [math.log(1 / (1 + math.exp((v[s, i] @ n).item()))) for n in drawn]
        total -= negatives * sum(missed) / len(missed)
    assert loss(v, u, drawn, near, negatives).item() == pytest.approx(total, rel=1e-12, abs=1e-12)


@given(SEEDS)
def test_slopes_are_those_of_autograd_and_of_the_formula(seed):
    v, u, drawn, near, negatives = batch(seed)
    found = slopes(v, u, drawn, near, negatives)
    wanted = torch.autograd.grad(loss(v, u, drawn, near, negatives), (v, u, drawn))
    for one, other in zip(found[:3], wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    by_hand = [torch.zeros_like(each) for each in (v, u, drawn)]
    for s, i, j in near.nonzero().tolist():
        miss = torch.sigmoid(v[s, i] @ u[s, j]).item() - 1
        by_hand[0][s, i] += miss * u[s, j]
        by_hand[1][s, j] += miss * v[s, i]
        for k, n in enumerate(drawn):
            hit = torch.sigmoid(v[s, i] @ n).item() * negatives / len(drawn)
            by_hand[0][s, i] += hit * n
            by_hand[2][k] += hit * v[s, i]
    for one, other in zip(found[:3], by_hand, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@settings(max_examples=10)
@given(SEEDS)
def test_the_curvature_is_the_trace_of_the_second_derivatives(seed):
    v, u, drawn, near, negatives = batch(seed)
    found = slopes(v, u, drawn, near, negatives)
    gradients = torch.autograd.grad(loss(v, u, drawn, near, negatives), (v, u, drawn), create_graph=True)
    for x, gradient, curved in zip((v, u, drawn), gradients, found[3:], strict=True):
        each = [torch.autograd.grad(g, x, retain_graph=True)[0].flatten()[k] for k, g in enumerate(gradient.flatten())]
        wanted = torch.stack(each).view(gradient.shape).sum(-1)
        torch.testing.assert_close(curved, wanted, rtol=1e-10, atol=1e-10)


@given(SEEDS, st.floats(0.01, 2))
def test_a_row_moves_once_for_all_its_places(seed, rate):
    random = torch.Generator().manual_seed(seed)
    matrix = torch.randn(5, 3, generator=random, dtype=torch.float64)
    rows = torch.randint(0, 4, (9,), generator=random)  # the last row stands nowhere
    slope = torch.randn(9, 3, generator=random, dtype=torch.float64)
    curvature = torch.rand(9, generator=random, dtype=torch.float64)
    wanted = matrix.clone()
    for row in range(5):
        its = rows == row
        wanted[row] -= rate * slope[its].sum(0) / (1 + rate * curvature[its].sum())
    room = torch.zeros(5, dtype=torch.float64)
    move(matrix, rows, slope, curvature, rate, room)
    torch.testing.assert_close(matrix, wanted)
    assert (room == 0).all()


# --- the text ---------------------------------------------------------------------------------------------------------


def test_negatives_are_drawn_by_their_counts_to_three_quarters():
    ids = np.repeat(np.arange(6), [1, 2, 5, 10, 50, 100])
    text = SkipGramText(ids, 6, None, 5, 1, 0.0)
    assert text.tokens.tolist() == [5, 4, 3, 2, 1, 0]
    n = 200_000
    found = np.bincount(text.draw(np.random.default_rng(0), (n,)), minlength=6)
    p = text.times**0.75 / (text.times**0.75).sum()
    assert (abs(found - n * p) < 5 * np.sqrt(n * p * (1 - p))).all()


def test_frequent_words_are_passed_over():
    times = np.array([90_000, 90, 80, 9])
    assert keep_probability(times, 0.0).tolist() == [1, 1, 1, 1]
    share = 90_000 / times.sum()
    wanted = math.sqrt(1e-3 / share) + 1e-3 / share
    assert keep_probability(times, 1e-3) == pytest.approx([wanted, 1, 1, 1])
    text = SkipGramText(np.repeat(np.arange(4), times), 4, None, 5, 1, 1e-3)
    rows, _ = text.thinned(text.ids, np.random.default_rng(0))
    kept = np.bincount(rows, minlength=4)
    assert abs(kept[0] - 90_000 * wanted) < 5 * math.sqrt(90_000 * wanted * (1 - wanted))
    assert kept[1:].tolist() == [90, 80, 9]


def pairs_of(text: SkipGramText, seed: int) -> list[tuple[int, list[int]]]:
    """Each word in the middle, in the order of the text, and the places near it, counted from it."""
    found = []
    for stretches in text.stretches(np.random.default_rng(seed)):
        for middle, around, near in zip(stretches.middle, stretches.around, stretches.near, strict=True):
            reach = (len(around) - STRETCH) // 2
            assert around[reach : reach + STRETCH].equal(middle)
            for i in range(STRETCH):
                found.append((int(middle[i]), (near[i].nonzero().flatten() - reach - i).tolist()))
    return found


LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=12).filter(lambda lengths: max(lengths) > 1)


@given(LENGTHS, st.integers(1, 6), SEEDS, st.sampled_from([1, 7, 64, 1 << 20]))
def test_windows_are_whole_and_never_cross_the_end_of_a_text(lengths, window, seed, chunk):
    """Nor the border of a chunk. The words of each text are 1, 2, 3, …"""
    ids = np.concatenate([[*range(1, 1 + length), 0] for length in lengths])
    text = SkipGramText(ids, 42, 0, window, 1, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(skip_gram_text, "CHUNK", chunk)
        found = iter(pairs_of(text, seed))
    for lo in range(0, len(ids), chunk):
        here = ids[lo : lo + chunk]
        for at in np.flatnonzero(here).tolist():
            row, offsets = next(found)
            assert text.tokens[row] == here[at]
            allowed = [
                o
                for o in range(-window, window + 1)
                if o and 0 <= at + o < len(here) and (here[min(at, at + o) : max(at, at + o) + 1] > 0).all()
            ]
            assert offsets in [[o for o in allowed if abs(o) <= width] for width in range(1, window + 1)]
        for _ in range(-np.count_nonzero(here) % STRETCH):
            assert next(found)[1] == []  # what only fills up is near nothing
    assert next(found, None) is None


def test_a_window_reaches_no_further_than_the_longest_text():
    ids = np.array([1, 2, 3, 4, 5, 0, 1, 2, 0])
    text = SkipGramText(ids, 6, 0, 10_000, 1, 0.0)
    (stretches,) = text.stretches(np.random.default_rng(0))
    assert stretches.around.shape[1] <= STRETCH + 2 * 5
    whole = [[o for o in range(-at, 5 - at) if o] for at in range(5)]
    assert [offsets for _, offsets in pairs_of(text, 0)[:7]] == [*whole, [1], [-1]]


def test_windows_are_as_often_wide_as_narrow():
    text = SkipGramText(np.arange(40_000) % 50, 50, None, 4, 1, 0.0)
    widths = np.bincount([max(map(abs, offsets)) for _, offsets in pairs_of(text, 0)[10:39_990]], minlength=5)[1:]
    assert (abs(widths - 39_980 / 4) < 5 * math.sqrt(39_980 * 3 / 16)).all()


# --- learning ---------------------------------------------------------------------------------------------------------


def topics(seed: int, sentences: int = 1500) -> np.ndarray:
    """Sentences of six words out of one of four topics of five words each: 1 … 20; 0 ends them."""
    random = np.random.default_rng(seed)
    return np.concatenate([[*(random.integers(0, 5, 6) + 5 * random.integers(4) + 1), 0] for _ in range(sentences)])


def test_words_of_one_topic_are_neighbours(tmp_path):
    config = SkipGramOptions(d=8, epochs=6, sample=0.0, rate=0.2)
    model = train_skip_gram(topics(0), 21, config, end=0)
    model.save(tmp_path / "vectors", [f"w{i}" for i in range(21)])
    assert is_word_vectors(tmp_path / "vectors")
    vectors = WordVectors.read(tmp_path / "vectors")
    assert vectors.words == [f"w{i}" for i in model.tokens]
    for word in range(1, 21):
        its = {f"w{i}" for i in range(1, 21) if (i - 1) // 5 == (word - 1) // 5} - {f"w{word}"}
        assert set(vectors.nearest(f"w{word}", 4).words) == its


def test_the_seed_decides_everything():
    config = SkipGramOptions(d=8, epochs=1)
    first, second = (train_skip_gram(topics(0, 300), 21, config, end=0) for _ in range(2))
    other = train_skip_gram(topics(0, 300), 21, SkipGramOptions(d=8, epochs=1, seed=1), end=0)
    assert np.array_equal(first.vectors, second.vectors)
    assert not np.array_equal(first.vectors, other.vectors)


def test_progress_is_told_to_the_end():
    told: list[tuple[int, int]] = []
    ids = topics(0, 300)
    train_skip_gram(ids, 21, SkipGramOptions(d=4, epochs=2), end=0, progress=lambda *each: told.append(each))
    assert told == sorted(told)
    assert told[-1] == (2 * len(ids), 2 * len(ids))


def test_ten_words_are_enough():
    ids = np.array([1, 2, 3, 4, 5, 6, 7, 1, 3, 8])
    found = train_skip_gram(ids, 9).vectors
    assert len(found) == 8
    still = train_skip_gram(ids, 9, SkipGramOptions(rate=1e-30)).vectors
    assert (np.abs(found - still).max(axis=1) > 1e-6).all()  # no word of a short text is passed over
    assert SkipGramText(ids, 9, None, 5, None, None).kept.tolist() == [1] * 8
    assert SkipGramText(np.repeat(ids, 10_000), 9, None, 5, None, None).kept.max() < 0.2  # but of a long one
    assert SkipGramText(ids, 9, None, 5, None, 1e-3).kept.max() < 0.2  # or where it is asked for
    with pytest.raises(InputError, match="no word stands in the text at least min_count=5 times"):
        train_skip_gram(ids, 9, SkipGramOptions(min_count=5))
    for alone in ([1, 0, 2, 0, 3, 0], [1, 0, 0, 2]):
        with pytest.raises(InputError, match="no two words stand in one text"):
            train_skip_gram(np.array(alone), 9, end=0)
    assert len(train_skip_gram(np.array([1, 0, 2, 0, 3, 4]), 9, end=0).vectors) == 4
    with pytest.raises(InputError, match="the text is empty"):
        train_skip_gram(np.array([], np.int64), 9)
    with pytest.raises(InputError, match=r"not all in 0 … 7"):
        train_skip_gram(ids, 8)


NAN, INF = math.nan, math.inf
WRONG = [{"d": 0}, {"window": 0}, {"epochs": 0}, {"rate": 0.0}, {"sample": -1.0}]
WRONG += [{name: value} for name in ("rate", "sample") for value in (NAN, INF)]


@pytest.mark.parametrize("wrong", WRONG)
def test_numbers_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))}={next(iter(wrong.values()))}"):
        SkipGramOptions(**wrong)


def test_a_word_with_a_line_end_is_not_written(tmp_path):
    with pytest.raises(InputError, match="line end"):
        SkipGram(np.array([0]), np.zeros((1, 2), np.float32)).save(tmp_path, ["a\nb"])
    assert not list(tmp_path.iterdir())
