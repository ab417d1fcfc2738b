"""n-grams of classes, and mixtures of models: they are distributions, and they are their formulas."""

import math
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.before import EOS, NGrams
from cutaway.before.ngrams.mixture import Mixture, fit_mixture
from cutaway.before.ngrams.ngram_of_classes import ClassNGramModel, train_class_ngrams
from cutaway.before.ngrams.smoothing import train_ngrams
from cutaway.errors import CheckpointError, ConfigError, InputError

V = 12  # the last two ids are never seen


def skewed(seed: int, length: int) -> list[int]:
    return (np.random.default_rng(seed).zipf(1.4, length) % (V - 2)).tolist()


TEXTS = st.builds(skewed, st.integers(0, 1000), st.integers(20, 200))
PASTS = st.lists(st.integers(0, V - 1), max_size=6)
ENDS = st.sampled_from([None, 0])
ORDERS = st.integers(1, 4)
KINDS = st.sampled_from(["kneser-ney", "back-off"])
MOST = st.sampled_from([3, 6, V])


def trained(ids: list[int], order: int, end: int | None, kind: str, most: int) -> ClassNGramModel:
    classes = min(3, len(set(ids) - {end}))
    return train_class_ngrams(np.array(ids), V, order, classes, end=end, smoothing=kind, most=most)


@given(TEXTS, ORDERS, ENDS, KINDS, MOST, PASTS)
def test_probabilities_of_all_next_tokens_sum_to_1(ids, order, end, kind, most, past):
    model = trained(ids, order, end, kind, most)
    words = train_ngrams(np.array(ids), V, order, end=end)
    for each in (model, Mixture([model, words], [0.3, 0.7])):
        for before in ([], past, [*ids, *past]):
            p = each.next_probabilities(before)
            assert p.sum() == pytest.approx(1, abs=1e-6)
            assert p.min() > 0


@given(TEXTS, ORDERS, ENDS, KINDS, MOST, PASTS)
def test_a_word_is_its_class_times_its_share_of_it(ids, order, end, kind, most, past):
    model = trained(ids, order, end, kind, most)
    of, p = model.classes.of, model.next_probabilities(past)
    by_class = model.model.next_probabilities([int(of[token]) for token in past])
    for number, bits in enumerate(model.classes.bits):
        its = model.classes.members(number)
        assert p[its].sum() == pytest.approx(by_class[number], rel=1e-6)
        if bits:
            share = np.array([ids.count(word) for word in its]) / sum(ids.count(word) for word in its)
            assert p[its] == pytest.approx(by_class[number] * share, rel=1e-6)


@given(TEXTS, ORDERS, ENDS, KINDS, MOST, PASTS)
def test_a_text_is_scored_as_token_after_token(ids, order, end, kind, most, other):
    model = trained(ids, order, end, kind, most)
    mixture = Mixture([model, train_ngrams(np.array(ids), V, order, end=end)], [0.25, 0.75])
    text = [*other, *ids[:20]]
    for each in (model, mixture):
        wanted = [math.log(each.next_probabilities(text[:i])[token]) for i, token in enumerate(text)]
        assert each.log_probabilities(np.array(text)).tolist() == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@given(TEXTS, ORDERS, ENDS, MOST, PASTS)
def test_a_model_is_opened_as_it_was_saved(ids, order, end, most, past):
    model = trained(ids, order, end, "kneser-ney", most)
    with TemporaryDirectory() as name:
        model.save(Path(name))
        again = ClassNGramModel.open(Path(name))
        assert np.array_equal(again.next_probabilities(past), model.next_probabilities(past))
        assert (str(again), again.end, again.classes.bits) == (str(model), model.end, model.classes.bits)
        assert again.classes.information == model.classes.information


def test_what_one_finds_by_hand():
    """x b x c x b: b and c are a class, B. Behind x comes always B, and x comes behind two classes, <sos> and B.
    With discounts ½, 1 and 1½: p(x) = 1/3 + 1/2 · 1/2, p(B | x) = 1/2 + 1/2 · p(B), p(x | B) = 1/2 + 1/2 · p(x)."""
    x, b, c = range(3)
    model = train_class_ngrams(np.array([x, b, x, c, x, b]), 3, 2, 2)
    assert model.classes.of[b] == model.classes.of[c] != model.classes.of[x]
    assert model.next_probabilities([x]) == pytest.approx([7 / 24, 17 / 24 * 2 / 3, 17 / 24 / 3])
    for before in (b, c):
        assert model.next_probabilities([before]) == pytest.approx([19 / 24, 5 / 24 * 2 / 3, 5 / 24 / 3])


def test_rare_words_share_with_those_that_were_never_seen():
    """Counts 5 … 5, then 1, 1, 2 and 0: with n₁ = 2 and n₂ = 1 each gives ½."""
    ids = [0, 1, 2] * 5 + [3, 4, 5, 5]
    model = train_class_ngrams(np.array(ids), 8, 2, 2, most=3)
    rare = model.classes.of[7]
    assert model.classes.members(rare) == [5, 3, 4, 6, 7]
    assert model.within[[3, 4, 5, 6, 7]] == pytest.approx(np.array([0.5, 0.5, 1.5, 0.75, 0.75]) / 4)


def test_classes_know_what_words_do_not():
    """«on» stood before two weekdays only; all weekdays stand before «we»."""
    lines = [f"on {day} we rest".split() for day in ("monday", "friday")]
    days = ["monday", "friday", "sunday", "tuesday"]
    lines += [f"{verb} {day} we go".split() for verb in ("till", "since", "by") for day in days]
    words, classes = NGrams(lines, 3), NGrams(lines, 3, classes=4)
    assert len({classes.model.classes.of[i] for i in classes.ids(days)}) == 1
    assert classes.probabilities(["on"])["sunday"] > 2 * words.probabilities(["on"])["sunday"]
    assert classes.generate(["on"], limit=6) == classes.generate(["on"], limit=6)
    assert math.fsum(classes.probabilities(["never", EOS]).values()) == pytest.approx(1, abs=1e-6)
    with pytest.raises(InputError, match="ARPA file has no place for classes"):
        classes.save_arpa(Path("nowhere.arpa"))


@given(TEXTS, TEXTS, ORDERS, ENDS, MOST)
def test_a_mixture_is_never_worse_than_one_of_its_models(ids, held_out, order, end, most):
    models = [trained(ids, order, end, "kneser-ney", most), train_ngrams(np.array(ids), V, order, end=end)]
    best = fit_mixture(models, np.array(held_out)).log_probabilities(np.array(held_out)).sum()
    assert all(best >= model.log_probabilities(np.array(held_out)).sum() - 1e-9 for model in models)


def test_shares_are_those_that_fit_best():
    ids = np.array(skewed(1, 600))
    models = [
        train_ngrams(ids[:300], V, 1),
        train_ngrams(ids[:300], V, 4),
        trained(ids[:300].tolist(), 2, None, "kneser-ney", V),
    ]
    mixture = fit_mixture(models, ids[300:])
    assert mixture.shares.sum() == pytest.approx(1)
    best = mixture.log_probabilities(ids[300:]).sum()
    for i in range(3):
        for j in range(3):
            moved = mixture.shares.copy()
            step = min(0.02, moved[i])
            moved[i] -= step
            moved[j] += step
            assert best >= Mixture(models, moved.tolist()).log_probabilities(ids[300:]).sum() - 1e-3


def test_what_does_not_mix_is_refused():
    one, other = train_ngrams(np.array([1, 2]), 4, 2), train_ngrams(np.array([1, 2]), 5, 2)
    with pytest.raises(ConfigError, match="different vocabularies"):
        Mixture([one, other], [0.5, 0.5])
    for shares in ([0.5], [0.5, 0.4], [1.5, -0.5]):
        with pytest.raises(ConfigError, match="sum to 1"):
            Mixture([one, one], shares)
    with pytest.raises(InputError, match="no text"):
        fit_mixture([one], np.array([], np.int64))


@pytest.mark.parametrize("odd", [-1, V])
def test_ids_that_are_none_are_refused(odd):
    model = trained(skewed(0, 100), 2, None, "kneser-ney", V)
    with pytest.raises(InputError, match=f"the id {odd} is not in 0 … {V - 1}"):
        model.log_probabilities(np.array([1, odd]))
    with pytest.raises(InputError, match=f"the id {odd}"):
        model.next_probabilities([odd])


@pytest.mark.parametrize("broken", ["bits", "class", "end", "gone"])
def test_a_damaged_folder_is_refused(tmp_path, broken):
    trained(skewed(0, 100), 2, 0, "kneser-ney", V).save(tmp_path)
    path = tmp_path / "classes.json"
    if broken == "class":
        np.save(tmp_path / "class.npy", np.zeros(V, np.int64))
    elif broken == "gone":
        path.unlink()
    else:
        old, new = {"bits": ('"bits"', '"bit"'), "end": ('"end": 0', '"end": 3')}[broken]
        path.write_text(path.read_text().replace(old, new))
    with pytest.raises(CheckpointError, match="classes"):
        ClassNGramModel.open(tmp_path)


def test_a_class_without_any_token_is_refused(tmp_path):
    trained(skewed(0, 100), 2, 0, "kneser-ney", V).save(tmp_path)
    np.save(tmp_path / "times.npy", np.zeros(V, np.int64))
    with pytest.raises(CheckpointError, match="classes"):
        ClassNGramModel.open(tmp_path)


@pytest.mark.parametrize("classes", [False, True])
def test_every_file_of_a_folder_may_be_changed(tmp_path, classes):
    """It is refused, or what is opened can be asked and says numbers."""
    model = (
        trained(skewed(0, 200), 3, 0, "kneser-ney", V)
        if classes
        else train_ngrams(np.array(skewed(0, 200)), V, 3, end=0)
    )
    model.save(tmp_path)
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    draw, refused = Random(0), 0
    for _ in range(300):
        path = draw.choice(list(kept))
        changed = bytearray(kept[path])
        at = draw.randrange(len(changed))
        changed[at : at + 8] = draw.choice((draw.randbytes(8), bytes(8), b"\xff" * 8, bytes(changed[at - 8 : at])))
        path.write_bytes(changed)
        try:
            opened = type(model).open(tmp_path)
            assert not np.isnan(opened.log_probabilities(np.arange(V))).any()
            assert np.isfinite(opened.next_probabilities([1, 2])).all()
            opened.generate(limit=5)
            ngrams = opened.model if classes else opened
            for order in (1, 2, 3):
                assert ngrams.ngrams(order, slice(0, 99)).max() <= ngrams.vocab_size
        except CheckpointError:
            refused += 1
        path.write_bytes(kept[path])
    assert refused > 50
