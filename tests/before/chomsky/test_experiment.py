"""What small models are asked of a language, and that the asking is fair."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cutaway.before.chomsky.experiment import (
    LanguageResults,
    all_correct,
    loss_of,
    recognises,
    run_experiment,
    train_on_words,
    words_of_language,
)
from cutaway.before.chomsky.languages import LANGUAGES, draw_words
from cutaway.before.chomsky.network import MODELS, POSITIONS, SmallConfig, SmallDecoder, small_model
from cutaway.errors import ConfigError, InputError
from cutaway.pictures import HeatMap, Lines


def test_at_every_place_stands_what_may_come_next():
    words = words_of_language(LANGUAGES["abc"], ["aabbcc", "abc"])
    may = [["".join(s for s, m in zip("$abc", row, strict=True) if m) for row in word] for word in words.may.tolist()]
    assert may[0] == ["a", "ab", "ab", "b", "c", "c", "$"]
    assert may[1][:4] == ["a", "ab", "c", "$"]
    assert words.ids.tolist() == [[0, 1, 1, 2, 2, 3, 3], [0, 1, 2, 3, 0, 0, 0]]
    assert words.real.sum(dim=1).tolist() == [7, 4]
    assert words.select(torch.tensor([1])).ids.tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_word_is_right_only_if_every_answer_is(name):
    words = words_of_language(LANGUAGES[name], draw_words(LANGUAGES[name], 1, 12, 10, seed=0))
    answers = torch.where(words.may, 1.0, -1.0)
    assert all_correct(answers, words).all()
    for place in (0, int(words.real[3].sum()) - 1):
        for symbol in range(answers.shape[2]):
            wrong = answers.clone()
            wrong[3, place, symbol] *= -1
            assert all_correct(wrong, words).tolist() == [i != 3 for i in range(10)]
    padding = answers.masked_fill(~words.real[:, :, None], 9.0)
    assert all_correct(padding, words).all()


@pytest.mark.parametrize("name", MODELS)
def test_the_future_and_padding_change_nothing(name):
    model = small_model(name, 5, 40, seed=0).double()
    ids = torch.randint(5, (2, 9), generator=torch.Generator().manual_seed(0))
    other = ids.clone()
    other[:, 6:] = (other[:, 6:] + 1) % 5
    with torch.no_grad():
        assert torch.allclose(model(ids)[:, :6], model(other)[:, :6], atol=1e-12)
        assert not torch.allclose(model(ids)[:, 6:], model(other)[:, 6:], atol=1e-3)
        assert torch.allclose(model(ids[:, :6]), model(ids)[:, :6], atol=1e-12)


@pytest.mark.parametrize("positions", POSITIONS)
def test_only_without_positions_the_past_is_a_set(positions):
    config = SmallConfig(vocab_size=5, max_len=12, positions=positions, n_layers=1)
    model = SmallDecoder(config)
    torch.manual_seed(0)
    model.initialise()
    model = model.double()
    ids = torch.tensor([[0, 1, 2, 3, 4, 1]])
    turned = torch.tensor([[0, 3, 1, 4, 2, 1]])
    with torch.no_grad():
        same = torch.allclose(model(ids)[:, -1], model(turned)[:, -1], atol=1e-9)
    assert same == (positions == "none")


def test_weights_are_those_of_the_seed():
    for name in ("rotary", "lstm"):
        first, again, other = (small_model(name, 4, 10, seed) for seed in (0, 0, 1))
        for a, b, c in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
            assert torch.equal(a, b)
            assert a.ndim < 2 or not torch.equal(a, c)
    with pytest.raises(ConfigError, match="positions='up'"):
        SmallConfig(vocab_size=4, max_len=4, positions="up")


def test_padding_has_no_part_in_the_loss():
    language = LANGUAGES["dyck-1"]
    model = small_model("learned", 3, 20, seed=0)
    short, both = words_of_language(language, ["()"]), words_of_language(language, ["()", "(())()()"])
    long = words_of_language(language, ["(())()()"])
    with torch.no_grad():
        parts = [(loss_of(model, words), int(words.real.sum())) for words in (short, long)]
        together = loss_of(model, both)
    expected = sum(loss * n for loss, n in parts) / sum(n for _, n in parts)
    assert together == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("name", ["rotary", "lstm"])
def test_brackets_are_learnt_from_short_words(name):
    language = LANGUAGES["dyck-1"]
    words = words_of_language(language, draw_words(language, 1, 6, 40, seed=0))
    model = small_model(name, 3, 20, seed=0)
    assert not recognises(model, words).any()
    assert train_on_words(model, words, steps=60, batch=16, rate=5e-3) == 60
    assert recognises(model, words).all()


def test_a_study_is_a_table_and_a_picture():
    told = []
    options = {"length": 4, "steps": 3, "words": 5, "pool": 50}
    found = run_experiment(["local", "dyck-1"], ["none", "lstm"], **options, progress=lambda *each: told.append(each))
    assert found.ranges == ((1, 4), (5, 8), (9, 12))
    assert {len(shares) for each in found.shares.values() for shares in each.values()} == {3}
    assert found.steps == {"local": {"none": 3, "lstm": 3}, "dyck-1": {"none": 3, "lstm": 3}}
    assert [what for _, what in told[::3]] == ["local, none", "local, lstm", "dyck-1, none", "dyck-1, lstm"]
    assert all(0 <= done <= 1 for done, _ in told)
    assert told == sorted(told, key=lambda one: one[0])
    again = run_experiment(["local", "dyck-1"], ["none", "lstm"], **options)
    assert again.shares == found.shares
    picture = found.picture()
    assert isinstance(picture, HeatMap)
    assert list(picture.rows) == ["local 1–4", "local 5–8", "local 9–12", "dyck-1 1–4", "dyck-1 5–8", "dyck-1 9–12"]
    assert picture.values[4, 1] == pytest.approx(found.shares["dyck-1"]["lstm"][1], abs=1e-6)
    shares = {"local": {"none": [0.5, 0.25, 0.0]}}
    alone = replace(found, shares=shares).picture()
    assert isinstance(alone, Lines)
    assert alone.x.tolist() == [2.5, 6.5, 10.5]  # no word need have the span's last length
    assert alone.x_name == "length (middle of 1–4, 5–8, 9–12)"
    for shown in (alone.title, alone.y_name):  # a drawing alone does not show its title
        assert "learnt from words of at most 4 symbols" in shown


def test_what_is_done_is_told_after_each_model():
    found = []
    options = {"length": 4, "steps": 1, "words": 2, "pool": 9}
    whole = run_experiment(["local", "dyck-1"], ["none", "lstm"], **options, on_result=found.append)
    done = [[f"{name} {model}" for name, each in one.shares.items() for model in each] for one in found]
    assert done == [done[3][:n] for n in (1, 2, 3, 4)]
    assert found[3].shares == whole.shares
    assert found[2].steps == {"local": {"none": 1, "lstm": 1}, "dyck-1": {"none": 1}}
    cut = found[2].picture()
    assert isinstance(cut, HeatMap)
    assert np.isnan(cut.values[3:, 1]).all()
    assert np.isfinite(cut.values[:3]).all()


@pytest.mark.parametrize("height", [0.0, 1.0])
def test_shares_that_are_all_one_have_a_scale_of_shares(height):
    ranges = ((1, 4), (5, 8), (9, 12))
    flat = LanguageResults(4, ranges, {"local": {"none": [height] * 3}}, {"local": {"none": 1}}, 1.0).picture()
    assert isinstance(flat, HeatMap)
    assert (flat.low, flat.high) == (0, 1)
    assert list(flat.rows) == ["local 1–4", "local 5–8", "local 9–12"]


def test_minutes_leave_steps_out():
    found = run_experiment(["local"], ["none"], length=4, steps=10**6, minutes=0.005, words=2, pool=50)
    assert found.steps["local"]["none"] < 1000


def test_what_is_not_there_is_named():
    with pytest.raises(InputError, match="no model is called 'rnn': none, sinusoidal"):
        run_experiment(["local"], ["rnn"])
    found = []
    with pytest.raises(InputError, match="no words of 1 to 2"):
        run_experiment(["local", "abc"], ["none"], length=2, steps=1, on_result=found.append)
    assert found == []  # refused before any model was trained, not behind the first ones


def test_words_are_drawn_anew_for_the_test(monkeypatch):
    asked = []

    def noted(language, low, high, n, seed):
        asked.append((low, high, n, seed))
        return draw_words(language, low, high, n, seed)

    monkeypatch.setattr("cutaway.before.chomsky.experiment.draw_words", noted)
    run_experiment(["local"], ["none"], length=4, steps=1, words=7, pool=50, seed=3)
    (learnt, *tests) = asked
    assert learnt == (1, 4, 50, 3)
    assert [test[:3] for test in tests] == [(1, 4, 7), (5, 8, 7), (9, 12, 7)]
    assert all(seed != 3 for *_, seed in tests)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_made_leaves_the_random_numbers_of_others_alone(name):
    torch.manual_seed(7)
    state = torch.get_rng_state()
    small_model(name, 4, 10, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
