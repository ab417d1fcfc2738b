"""n-gram models against dictionaries, written straight from the formulas of Chen & Goodman; and laws of all of them."""

import math
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.before.ngrams.counts import NgramCounts, count_ngrams
from cutaway.before.ngrams.ngram import NGramModel, NgramTable
from cutaway.before.ngrams.smoothing import smoothed, train_ngrams
from cutaway.errors import CheckpointError, ConfigError, InputError

V = 7  # the last id is never seen
SOS = V


def skewed(seed: int, length: int) -> list[int]:
    """Long enough, and uneven enough, for discounts of their own."""
    return (np.random.default_rng(seed).zipf(1.6, length) % (V - 1)).tolist()


SHORT = st.lists(st.integers(0, V - 2), min_size=1, max_size=40)
LONG = st.builds(skewed, st.integers(0, 1000), st.integers(150, 300))
TEXTS = SHORT | LONG
PASTS = st.lists(st.integers(0, V - 1), max_size=8)
ENDS = st.sampled_from([None, 0])
ORDERS = st.integers(1, 7)
KINDS = st.sampled_from(["kneser-ney", "back-off"])


class ByHand:
    """p(w | h) by dictionaries and recursion."""

    def __init__(self, ids: list[int], order: int, end: int | None, kind: str) -> None:
        texts = [[SOS]]
        for token in ids:
            texts[-1].append(token)
            if token == end:
                texts.append([SOS])
        self.order, self.end, self.kind = order, end, kind
        seen = {
            n: Counter(tuple(t[i : i + n]) for t in texts for i in range(len(t) - n + 1)) for n in range(1, order + 1)
        }
        del seen[1][(SOS,)]
        self.count = {n: {g: self.adjusted(seen, n, g) for g in seen[n]} for n in seen}
        self.discounts = {n: self.discounts_of(list(self.count[n].values())) for n in seen}
        self.rows: dict[tuple[int, ...], dict[int, int]] = {}
        for n in seen:
            for g, a in self.count[n].items():
                self.rows.setdefault(g[:-1], {})[g[-1]] = a

    def adjusted(self, seen: dict[int, Counter], n: int, g: tuple[int, ...]) -> int:
        if self.kind == "back-off" or n == self.order or g[0] == SOS:
            return seen[n][g]
        return sum((v, *g) in seen[n + 1] for v in range(V + 1))

    @staticmethod
    def discounts_of(counts: list[int]) -> list[float]:
        n = [counts.count(r) for r in range(5)]
        if all(n[1:]):
            y = n[1] / (n[1] + 2 * n[2])
            found = [r - (r + 1) * y * n[r + 1] / n[r] for r in (1, 2, 3)]
            if all(d > 0 for d in found):
                return found
        return [0.5, 1, 1.5]

    def p(self, w: int, h: tuple[int, ...]) -> float:
        row = self.rows.get(h)
        if row is None:
            return self.p(w, h[1:])
        total = sum(row.values())
        taken = {v: self.discounts[len(h) + 1][min(a, 3) - 1] for v, a in row.items()}
        if not h:
            return (row.get(w, 0) - taken.get(w, 0)) / total + sum(taken.values()) / total / V
        if self.kind == "kneser-ney":
            return (row.get(w, 0) - taken.get(w, 0)) / total + sum(taken.values()) / total * self.p(w, h[1:])
        unseen = [v for v in range(V) if v not in row]
        if not unseen:
            return row[w] / total
        if w in row:
            return (row[w] - taken[w]) / total
        return sum(taken.values()) / total * self.p(w, h[1:]) / sum(self.p(v, h[1:]) for v in unseen)

    def next(self, past: list[int]) -> list[float]:
        text = [SOS]
        for token in past:
            text = [SOS] if token == self.end else [*text, token]
        h = tuple(text[max(len(text) - self.order + 1, 0) :])
        return [self.p(w, h) for w in range(V)]


@given(TEXTS, ORDERS, ENDS, KINDS, PASTS)
def test_the_estimate_is_that_by_hand_in_every_context(ids, order, end, kind, past):
    model, wanted = train_ngrams(np.array(ids), V, order, end=end, smoothing=kind), ByHand(ids, order, end, kind)
    for before in [past, *(ids[:i] for i in range(min(len(ids), 30) + 1)), ids]:
        assert model.next_probabilities(before) == pytest.approx(wanted.next(before), rel=2e-6)


def test_the_long_texts_have_discounts_of_their_own():
    """So that the law above is about the formula, too."""
    own = [ByHand(skewed(seed, 250), 3, None, "kneser-ney").discounts for seed in range(20)]
    assert all(any(found[n] != [0.5, 1, 1.5] for found in own) for n in (2, 3))


@given(TEXTS, ORDERS, ENDS, KINDS, PASTS)
def test_probabilities_of_all_next_tokens_sum_to_1(ids, order, end, kind, past):
    model = train_ngrams(np.array(ids), V, order, end=end, smoothing=kind)
    for before in ([], past, ids, [*ids, *past]):
        p = model.next_probabilities(before)
        assert p.sum() == pytest.approx(1, abs=1e-6)
        assert p.min() > 0


@given(st.permutations([0, 0, 1, 1, 1, 2, 0, 2, 2, 1]), st.integers(1, 4))
def test_back_off_gives_to_nobody_where_nobody_is_left(ids, order):
    model = train_ngrams(np.array([*ids, 0, 1, 0, 2, 0, 0]), 3, order, smoothing="back-off")
    for past in ([], [0], ids, [*ids, 0]):  # behind 0 stood 0, 1 and 2
        assert model.next_probabilities(past).sum() == pytest.approx(1, abs=1e-6)


@given(TEXTS, ENDS, KINDS, ORDERS)
def test_the_beginning_of_a_text_never_comes(ids, end, kind, order):
    model = train_ngrams(np.array(ids), V, order, end=end, smoothing=kind)
    assert model.tables[0].log_p[SOS] == -np.inf
    assert all((table.keys % (V + 1) != SOS).all() for table in model.tables[1:])


@given(TEXTS, ORDERS, ENDS, KINDS, PASTS, st.integers(1, 50))
def test_a_text_is_scored_as_token_after_token(ids, order, end, kind, other, batch):
    model = train_ngrams(np.array(ids), V, order, end=end, smoothing=kind)
    text = [*other, *ids[:20], *other]
    wanted = [math.log(model.next_probabilities(text[:i])[token]) for i, token in enumerate(text)]
    assert model.log_probabilities(np.array(text, np.int64), batch).tolist() == pytest.approx(
        wanted, rel=1e-6, abs=1e-6
    )


@given(TEXTS, ENDS)
def test_order_1_is_how_often_a_token_stands_there_and_below_order_2_behind_how_many(ids, end):
    single, pairs = (count_ngrams(np.array(ids), V, order, end=end) for order in (1, 2))
    times = Counter(ids)
    starts = {0} | {i + 1 for i, token in enumerate(ids) if token == end}
    before = {(SOS if i in starts else ids[i - 1], token) for i, token in enumerate(ids)}
    behind = Counter(token for _, token in before)
    for counts, wanted in ((single, times), (pairs, behind)):
        p = np.exp(smoothed(counts).tables[0].log_p[:V].astype(float))
        taken = ByHand.discounts_of(list(wanted.values()))
        total, left = sum(wanted.values()), sum(taken[min(n, 3) - 1] for n in wanted.values())
        for token in range(V):
            n = wanted[token]
            by_hand = (n - taken[min(n, 3) - 1] if n else 0) / total + left / total / V
            assert p[token] == pytest.approx(by_hand, rel=1e-6)


def same(one: NGramModel, other: NGramModel) -> bool:
    pairs = [pair for tables in zip(one.tables, other.tables, strict=True) for pair in zip(*tables, strict=True)]
    about = (one.vocab_size, one.end, one.about) == (other.vocab_size, other.end, other.about)
    return about and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


@given(TEXTS, ORDERS, ENDS, KINDS, st.integers(1, 100))
def test_neither_the_chunk_nor_where_the_model_lies_changes_a_bit(ids, order, end, kind, chunk):
    model = train_ngrams(np.array(ids), V, order, end=end, smoothing=kind)
    assert same(train_ngrams(np.array(ids), V, order, end=end, smoothing=kind, chunk=chunk), model)
    with TemporaryDirectory() as name:
        folder = Path(name)
        trained = train_ngrams(np.array(ids), V, order, end=end, smoothing=kind, chunk=chunk, folder=folder / "a")
        assert same(trained, model)
        assert same(NGramModel.open(folder / "a"), model)
        kept = {path.name for path in (folder / "a").iterdir()}
        assert kept == {"ngrams.json"} | {f"{k}{n + 1}.npy" for k in NgramTable._fields for n in range(order)}
        model.save(folder / "b")
        assert same(NGramModel.open(folder / "b"), model)


@pytest.mark.parametrize("kind", ["kneser-ney", "back-off"])
def test_what_follows_a_context_is_never_parted(kind):
    counts = count_ngrams(np.array(skewed(0, 300)), V, 3)
    assert all(same(smoothed(counts, kind, chunk), smoothed(counts, kind)) for chunk in (1, 2, 5, 20))


def test_a_model_may_be_saved_over_the_files_that_it_is_mapped_from(tmp_path):
    model = train_ngrams(np.array(skewed(0, 300)), V, 3, folder=tmp_path)
    model.save(tmp_path)
    assert same(model, train_ngrams(np.array(skewed(0, 300)), V, 3))
    assert same(NGramModel.open(tmp_path), model)


def test_a_folder_that_was_counted_anew_has_no_model(tmp_path):
    model = train_ngrams(np.array([1, 2, 3]), V, 2, folder=tmp_path)
    count_ngrams(np.array([3, 2, 1]), V, 2, folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"ngrams\.json"):
        NGramModel.open(tmp_path)
    model.save(tmp_path)
    with pytest.raises(CheckpointError, match=r"counts\.json"):
        NgramCounts.open(tmp_path)


@given(TEXTS, ORDERS, KINDS, st.integers(0, 9))
def test_what_is_generated_is_of_the_vocabulary_and_ends_at_the_end(ids, order, kind, seed):
    model = train_ngrams(np.array(ids), V, order, end=0, smoothing=kind)
    text = model.generate([1], seed=seed, limit=20)
    assert text == model.generate([1], seed=seed, limit=20)
    assert text[0] == 1
    assert 1 < len(text) <= 21
    assert all(0 <= token < V for token in text)
    assert 0 not in text[:-1]
    assert text[-1] == 0 or len(text) == 21


def test_a_model_says_which_orders_had_no_discounts_of_their_own():
    assert str(train_ngrams(np.arange(5), V, 3)) == "3-gram model (kneser-ney, discounts ½, 1, 1½ for order 1, 2, 3)"
    text = np.random.default_rng(0).zipf(1.3, 20_000) % 500
    assert train_ngrams(text, 500, 2).about == "kneser-ney"


def test_what_makes_no_model_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="the text is empty"):
        train_ngrams(np.array([], np.int64), V, 2)
    with pytest.raises(ConfigError, match="smoothing='good-turing'"):
        train_ngrams(np.array([1]), V, 2, smoothing="good-turing")
    model = train_ngrams(np.array([1, 2, 3]), V, 2, folder=tmp_path)
    for past in ([V], [-1]):
        with pytest.raises(InputError, match=r"0 … 6"):
            model.next_probabilities(past)
    with pytest.raises(InputError, match="the id 7"):
        model.log_probabilities(np.array([7]))
    assert model.log_probabilities(np.array([], np.int64)).shape == (0,)


@pytest.mark.parametrize("broken", ["short", "type", "order", "end", "gone", "key"])
def test_a_damaged_folder_is_refused(tmp_path, broken):
    train_ngrams(np.array([1, 2, 3]), V, 2, end=0, folder=tmp_path)
    about = (tmp_path / "ngrams.json").read_text()
    if broken == "short":
        np.save(tmp_path / "log_p2.npy", np.zeros(1, np.float32))
    elif broken == "type":
        np.save(tmp_path / "keys2.npy", np.zeros(3, np.float64))
    elif broken == "gone":
        (tmp_path / "log_weight1.npy").unlink()
    else:
        old, new = {"order": ('"order": 2', '"order": 9'), "end": ('"end": 0', '"end": 7'), "key": ("about", "abut")}[
            broken
        ]
        (tmp_path / "ngrams.json").write_text(about.replace(old, new))
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        NGramModel.open(tmp_path)
