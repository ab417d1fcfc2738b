"""The metrics against scikit-learn and scipy, with ties and with answers that say nothing."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from cutaway.errors import InputError
from cutaway.evaluation.scores import accuracy, f1, macro_f1, matthews, pearson, ranks, span_f1, spans, spearman

EXACT = 1e-12


def pairs(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(st.tuples(values, values), min_size=1, max_size=40)


BINARY, CLASSES = pairs(st.integers(0, 1)), pairs(st.integers(0, 4))
TIED = pairs(st.integers(-3, 3).map(float))
REAL = pairs(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)))
NAMES = pairs(st.sampled_from(["cat", "dog", "fish"]))


def sides(answers: list[tuple]) -> tuple[list, list]:
    predicted, wanted = zip(*answers, strict=True)
    return list(predicted), list(wanted)


def quiet(score, *answers, **options) -> float:
    """A peer's score, its warnings about 0/0 aside."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(score(*answers, **options))


@given(CLASSES | NAMES)
def test_accuracy_and_macro_f1(answers):
    predicted, wanted = sides(answers)
    assert accuracy(predicted, wanted) == pytest.approx(metrics.accuracy_score(wanted, predicted), abs=EXACT)
    theirs = quiet(metrics.f1_score, wanted, predicted, average="macro", zero_division=0)
    assert macro_f1(predicted, wanted) == pytest.approx(theirs, abs=EXACT)


@given(BINARY)
def test_f1(answers):
    predicted, wanted = sides(answers)
    for positive in (0, 1):
        theirs = quiet(metrics.f1_score, wanted, predicted, pos_label=positive, zero_division=0, labels=[0, 1])
        assert f1(predicted, wanted, positive=positive) == pytest.approx(theirs, abs=EXACT)


@given(BINARY | CLASSES | NAMES)
def test_matthews(answers):
    predicted, wanted = sides(answers)
    theirs = quiet(metrics.matthews_corrcoef, wanted, predicted)
    assert matthews(predicted, wanted) == pytest.approx(theirs, abs=EXACT)


@given(TIED | REAL)
def test_correlations(answers):
    x, y = sides(answers)
    constant = len(set(x)) == 1 or len(set(y)) == 1
    for ours, theirs in ((pearson, stats.pearsonr), (spearman, stats.spearmanr)):
        expected = 0.0 if constant else quiet(lambda x, y, theirs=theirs: theirs(x, y).statistic, x, y)
        assert ours(x, y) == pytest.approx(expected, abs=1e-9)


@given(TIED)
def test_equal_numbers_share_their_ranks(answers):
    x, _ = sides(answers)
    assert ranks(np.asarray(x)).tolist() == stats.rankdata(x).tolist()


@pytest.mark.parametrize("score", [matthews, pearson, spearman])
def test_constant_answers_are_worth_nothing_and_raise_no_warning(score):
    wanted = [0, 1, 1, 0, 1]
    assert score([1] * 5, wanted) == 0.0
    assert score(wanted, [1] * 5) == 0.0
    assert score([1] * 5, [1] * 5) == 0.0


def test_a_constant_that_rounds_is_still_a_constant():
    assert pearson([0.1] * 7, list(range(7))) == 0.0  # the mean of seven times 0.1 is not 0.1


def test_a_class_that_nobody_names_has_no_f1():
    assert f1([0, 0], [0, 0]) == 0.0
    assert macro_f1([0, 0], [1, 1]) == 0.0


def test_huge_and_tiny_numbers_do_not_overflow():
    x = np.array([1e200, 2e200, 4e200])
    assert pearson(x, [1, 2, 4]) == pytest.approx(1.0, abs=EXACT)
    assert pearson(x * 1e-300 * 1e-90, [1, 2, 4]) == pytest.approx(1.0, abs=EXACT)


def test_lists_arrays_and_names_are_the_same():
    assert accuracy(np.array([1, 0]), [1, 1]) == accuracy(["b", "a"], ["b", "b"]) == 0.5


@pytest.mark.parametrize("score", [accuracy, f1, macro_f1, matthews, pearson, spearman, span_f1])
def test_what_cannot_be_scored_is_refused(score):
    with pytest.raises(InputError, match="no examples"):
        score([], [])
    with pytest.raises(InputError, match="1 answers for 2 examples"):
        score([["O"]], [["O"], ["O"]])


def test_numbers_for_names_and_tables_are_refused():
    with pytest.raises(InputError, match="names on both sides"):
        accuracy([1], ["yes"])
    with pytest.raises(InputError, match="one answer for each example"):
        accuracy(np.zeros((2, 3)), np.zeros(2))
    with pytest.raises(InputError, match="answer 1 is nan"):
        pearson([0.0, float("nan")], [1.0, 2.0])


# --- spans ------------------------------------------------------------------------------------------------------------


def test_spans_are_read_off_their_tags():
    assert spans("O B-PER I-PER O B-LOC B-LOC".split()) == [(1, 3, "PER"), (4, 5, "LOC"), (5, 6, "LOC")]
    assert spans("I-PER I-LOC I-LOC".split()) == [(0, 1, "PER"), (1, 3, "LOC")]
    assert spans("B-PER I-LOC B-X".split()) == [(0, 1, "PER"), (1, 2, "LOC"), (2, 3, "X")]
    assert spans([]) == []
    assert spans("B-PER E-PER I-PER S-LOC S-LOC O".split()) == [
        (0, 2, "PER"), (2, 3, "PER"), (3, 4, "LOC"), (4, 5, "LOC"),
    ]  # fmt: skip
    assert spans("B-PER I-PER L-PER U-LOC E-X".split()) == [(0, 3, "PER"), (3, 4, "LOC"), (4, 5, "X")]


def test_half_a_span_is_no_span():
    wanted = ["O B-PER I-PER O B-LOC".split()]
    assert span_f1(wanted, wanted) == 1.0
    assert span_f1(["O B-PER O O B-LOC".split()], wanted) == 0.5  # 1 right of 2 said and 2 wanted
    assert span_f1(["O B-ORG I-ORG O O".split()], wanted) == 0.0
    assert span_f1([["O"] * 5], [["O"] * 5]) == 0.0
    with pytest.raises(InputError, match="sentence 0 has 5 tags, and 1 were"):
        span_f1([["O"]], wanted)
