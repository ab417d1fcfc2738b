"""The bootstrap: intervals that hold what they promise, and comparisons that see a difference where there is one."""

import numpy as np
import pytest
import sacrebleu
from helpers.corpora import corpora
from sacrebleu.significance import PairedTest

from cutaway.errors import InputError
from cutaway.evaluation import bootstrap
from cutaway.evaluation.bleu import bleu_counts, chrf_counts
from cutaway.evaluation.bootstrap import compare, corpus, each, interval, mean_of, ratio_of
from cutaway.evaluation.options import BootstrapOptions
from cutaway.evaluation.scores import accuracy, pearson


def test_95_percent_of_the_intervals_hold_the_truth():
    generator = np.random.default_rng(0)
    worlds = generator.exponential(3.0, (400, 150))  # skewed, as scores are
    inside = [
        found.low <= 3.0 <= found.high
        for seed, sample in enumerate(worlds)
        for found in [interval(mean_of(sample), 150, seed=seed, resamples=300)]
    ]
    assert 0.91 < np.mean(inside) < 0.98
    narrow = [
        found.low <= 3.0 <= found.high
        for seed, sample in enumerate(worlds)
        for found in [interval(mean_of(sample), 150, seed=seed, resamples=300, level=0.5)]
    ]
    assert 0.42 < np.mean(narrow) < 0.58


def test_a_single_draw_is_an_interval_of_one_point():
    found = interval(mean_of([0.0, 1.0, 2.0]), 3, seed=0, resamples=1)
    assert found is not None
    assert found.low == found.high


def test_one_example_has_no_interval():
    """Drawn a thousand times it is the same thousand times, which looks like certainty."""
    assert interval(mean_of([0.3]), 1, seed=0) is None
    assert interval(mean_of([0.3, 0.4]), 2, seed=0) is not None
    assert bootstrap.intervals({"one": mean_of([1.0])}, 1, BootstrapOptions()) == {}
    assert bootstrap.intervals({"one": mean_of([1.0, 2.0])}, 2, BootstrapOptions(resamples=0)) == {}


@pytest.mark.parametrize("counts", [bleu_counts, chrf_counts])
def test_everything_drawn_once_is_sacrebleus_score(counts):
    hypotheses, references = corpora()
    theirs = sacrebleu.corpus_bleu if counts is bleu_counts else sacrebleu.corpus_chrf
    every = np.arange(len(references))[None]
    (score,) = corpus(counts(hypotheses, references))(every)
    assert score == theirs(hypotheses, [references]).score


def test_a_resampled_corpus_is_scored_as_if_it_were_written_out():
    hypotheses, references = corpora()
    draws = np.random.default_rng(1).integers(0, 60, (5, 60))
    for row, score in zip(draws, corpus(bleu_counts(hypotheses, references))(draws), strict=True):
        written_out = [hypotheses[i] for i in row], [[references[i] for i in row]]
        assert score == sacrebleu.corpus_bleu(*written_out).score


def test_the_interval_is_near_sacrebleus():
    hypotheses, references = corpora(300)
    theirs = sacrebleu.BLEU().corpus_score(hypotheses, [references], n_bootstrap=1000)
    ours = interval(corpus(bleu_counts(hypotheses, references)), 300, seed=0)
    assert ours.low < theirs.score < ours.high
    assert (ours.high - ours.low) / 2 == pytest.approx(theirs._ci, rel=0.1)


def test_the_same_seed_gives_the_same_interval_however_it_is_cut(monkeypatch):
    values = np.random.default_rng(0).normal(size=100)
    once = interval(mean_of(values), 100, seed=7)
    assert interval(mean_of(values), 100, seed=7) == once
    assert interval(mean_of(values), 100, seed=8) != once
    monkeypatch.setattr(bootstrap, "AT_ONCE", 350)
    assert interval(mean_of(values), 100, seed=7) == once


def test_any_score_has_an_interval():
    generator = np.random.default_rng(0)
    wanted = generator.integers(0, 2, 200)
    predicted = np.where(generator.random(200) < 0.8, wanted, 1 - wanted)
    slow = interval(each(accuracy, predicted, wanted), 200, seed=3)
    assert slow == interval(mean_of(predicted == wanted), 200, seed=3)
    assert slow.low < accuracy(predicted, wanted) < slow.high
    found = interval(each(pearson, predicted + generator.normal(size=200), wanted), 200, seed=0)
    assert 0 < found.low < found.high < 1


def test_a_sum_over_a_sum():
    above, below = np.array([1.0, 6.0]), np.array([1.0, 2.0])
    assert ratio_of(above, below)(np.array([[0, 0], [0, 1], [1, 1]])).tolist() == [1.0, 7 / 3, 3.0]


def test_chance_differs_rarely_and_a_real_difference_shows():
    generator = np.random.default_rng(0)
    same = [compare(*generator.normal(size=(2, 80)), seed=seed, resamples=200).p_value for seed in range(300)]
    assert 0.02 < np.mean(np.array(same) < 0.05) < 0.09
    easy = generator.normal(size=300)  # what both find easy: a paired test does not mind it
    found = compare(easy * 5 + 0.3 + generator.normal(size=300) * 0.5, easy * 5, seed=0)
    assert found.p_value == 1 / 1001
    assert found.interval.low < found.difference < found.interval.high
    assert found.interval.low > 0


def test_the_other_way_round_only_the_sign_differs():
    generator = np.random.default_rng(1)
    a, b = generator.normal(size=(2, 60))
    one, other = compare(a, b, seed=0, resamples=300), compare(b, a, seed=0, resamples=300)
    assert one.p_value == other.p_value > 0.05
    assert one.difference == -other.difference == pytest.approx(float((a - b).mean()))
    assert (one.interval.low, one.interval.high) == pytest.approx((-other.interval.high, -other.interval.low))


def test_the_p_value_is_near_sacrebleus():
    (one, references), (other, _) = corpora(200), corpora(200, seed=0)
    other = [" ".join(text.split()[::-1]) if i % 60 == 1 else text for i, text in enumerate(other)]
    ours = compare(bleu_counts(one, references), bleu_counts(other, references), seed=0, resamples=2000)
    test = PairedTest([("other", other), ("one", one)], {"BLEU": sacrebleu.BLEU()}, [references], "bs", 2000)
    theirs = test()[1]["BLEU"][1]
    assert ours.difference == pytest.approx(theirs.score - test()[1]["BLEU"][0].score)
    assert 0.005 < theirs.p_value < 0.5
    assert ours.p_value == pytest.approx(theirs.p_value, abs=0.03)


def test_what_cannot_be_compared_is_refused():
    counts = bleu_counts(["a b", "b"], ["a b", "b"])
    with pytest.raises(InputError, match=r"2 examples .* 3 for"):
        compare([1.0, 2.0], [1.0, 2.0, 3.0], seed=0)
    with pytest.raises(InputError, match="cannot be compared"):
        compare(counts, chrf_counts(["a b", "b"], ["a b", "b"]), seed=0)
    with pytest.raises(InputError, match=r"case:mixed.* and .*case:lc.* cannot be compared"):
        compare(counts, bleu_counts(["a b", "b"], ["a b", "b"], lowercase=True), seed=0)
    with pytest.raises(InputError, match="the same kind on both"):
        compare(counts, [1.0, 2.0], seed=0)
    with pytest.raises(InputError, match="no examples"):
        interval(mean_of([]), 0, seed=0)
    with pytest.raises(InputError, match="resamples=0"):
        interval(mean_of([1.0]), 1, seed=0, resamples=0)
    with pytest.raises(InputError, match=r"level=95"):
        interval(mean_of([1.0]), 1, seed=0, level=95.0)
