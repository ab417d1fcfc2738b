"""Shannon's bounds lie on both sides of the truth, where the truth is known."""

from collections import Counter
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cutaway.before.shannon.bounds import LETTERS, READER, bounds, bounds_of, counted_guesses, folded, reduced
from cutaway.before.shannon.players import ranks_of
from cutaway.errors import InputError

matrices = arrays.arrays(float, st.tuples(st.integers(2, 6), st.just(6)), elements=st.floats(0.001, 1))


def entropy(p):
    return float(-(p * np.log2(p)).sum())


def chain(rows):
    """A Markov chain over as many letters as there are rows: transitions, and how often each letter stands."""
    transitions = rows[:, : len(rows)] / rows[:, : len(rows)].sum(axis=1, keepdims=True)
    stays = np.full(len(rows), 1 / len(rows))
    for _ in range(2000):
        stays = stays @ (0.5 * transitions + 0.5 * np.eye(len(rows)))
    return transitions, stays


@given(matrices)
def test_the_bounds_of_an_ideal_guesser_enclose_the_entropy_of_a_markov_source(rows):
    transitions, stays = chain(rows)
    truth = sum(weight * entropy(row) for weight, row in zip(stays, transitions, strict=True))
    lower, upper = bounds_of(stays @ -np.sort(-transitions, axis=1))
    assert lower - 1e-9 <= truth <= upper + 1e-9


def test_the_bounds_enclose_it_in_a_text_that_was_drawn():
    random = np.random.default_rng(0)
    transitions, stays = chain(random.random((5, 5)) ** 4)
    truth = sum(weight * entropy(row) for weight, row in zip(stays, transitions, strict=True))
    text = [0]
    for _ in range(20_000):
        text.append(int(random.choice(5, p=transitions[text[-1]])))
    text = np.array(text)
    found = bounds(ranks_of(transitions[text[:-1]], text[1:]).tolist())
    assert found.n == 20_000
    assert found.lower + 0.02 < truth < found.upper - 0.02
    first, second, third = counted_guesses(text, 3)
    assert first == pytest.approx(entropy(stays), abs=0.02)
    assert second == pytest.approx(truth, abs=0.02)
    assert third == pytest.approx(truth, abs=0.02)  # one letter is all that such a source remembers


@given(st.lists(st.integers(1, 27), min_size=1, max_size=60))
def test_the_lower_bound_is_never_above_the_upper_one(ranks):
    found = bounds(ranks)
    assert 0 <= found.lower <= found.upper + 1e-9 <= log2(27) + 1e-9


@pytest.mark.parametrize("k", [1, 2, 27])
def test_of_equally_likely_letters_both_bounds_are_the_entropy(k):
    found = bounds(list(range(1, k + 1)) * 3)
    assert (found.lower, found.upper) == (pytest.approx(log2(k)), pytest.approx(log2(k)))
    assert bounds([k] * 5) == bounds([1] * 5)  # always two guesses say as much as always one: everything is known


def test_no_guess_no_bound():
    assert bounds([]).n == 0
    assert np.isnan(bounds([]).upper)
    with pytest.raises(InputError, match="at least one"):
        bounds([1, 0])


def test_from_a_few_letters_the_upper_bound_is_too_low_by_what_we_say():
    random, p = np.random.default_rng(0), 1 / np.arange(2, 12)
    p /= p.sum()
    for n in (50, 200):
        found = [bounds(random.choice(np.arange(1, 11), n, p=p).tolist()).upper for _ in range(400)]
        assert entropy(p) - np.mean(found) == pytest.approx(9 / (2 * n * np.log(2)), rel=0.2)


def test_his_reader_ends_as_everybody_quotes():
    assert READER[100] == (0.6, 1.3)  # the other numbers are as commonly quoted, too
    assert len(READER) == 16
    assert all(lower < upper for lower, upper in READER.values())
    assert bounds(list(range(1, 28))).upper == pytest.approx(4.76, abs=0.01)  # F₀


@given(st.one_of(st.text("ab", min_size=60), st.text("abc", min_size=1)), st.integers(1, 4))
def test_counted_entropies_are_those_of_a_count_by_hand(text, most):
    found = counted_guesses(np.array([ord(letter) - 97 for letter in text]), most)
    for known, bits in enumerate(found):
        grams = [text[i : i + known + 1] for i in range(len(text) - known)]
        both, context = Counter(grams), Counter(gram[:-1] for gram in grams)
        by_hand = sum(-log2(both[gram] / context[gram[:-1]]) for gram in grams) / len(grams)
        assert bits == pytest.approx(by_hand, abs=1e-9)
        assert len(grams) >= 10 * len(context)
    if len(found) < most:  # the next contexts are too rare
        grams = [text[i : i + len(found)] for i in range(len(text) - len(found))]
        assert len(grams) < 10 * max(len(set(grams)), 1)


@given(st.text(max_size=40))
def test_reduced_texts_have_27_letters_and_stay_as_they_are(text):
    found = reduced(text)
    assert set(found) <= set(LETTERS)
    assert "  " not in found
    assert reduced(found) == found == found.strip()


def test_what_becomes_of_characters():
    assert reduced("Don't — Émile’s 3 cafés!") == "dont emiles cafes"
    assert [folded(c) for c in "eÉ\n.7'’ß"] == ["e", "e", " ", " ", " ", None, None, "s"]


@given(matrices)
def test_a_rank_is_the_place_in_the_order_of_guesses(chances):
    chances = chances.round(1)  # so that some are equal
    right = np.arange(len(chances)) % 6
    order = [sorted(range(6), key=lambda i, row=row: (-row[i], i)) for row in chances]
    assert ranks_of(chances, right).tolist() == [1 + each.index(i) for each, i in zip(order, right, strict=True)]
