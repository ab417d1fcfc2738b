"""The next letter of a model of tokens is that of every way to cut the text, added up."""

import numpy as np
import pytest
import torch
from helpers.inside_commands import TEXT, pieces
from helpers.tiny_models import tiny

from cutaway.before.shannon import next_letter
from cutaway.before.shannon.bounds import LETTERS, folded
from cutaway.before.shannon.game import Game
from cutaway.before.shannon.next_letter import NextLetter
from cutaway.before.shannon.players import model_curve
from cutaway.decoding.rules.token_bytes import pieces_of
from cutaway.errors import InputError
from cutaway.tokens.tokenizer_training import train_tokenizer


@pytest.fixture(scope="module")
def speller():
    model = tiny("llama", vocab_size=280, max_len=64, dtype=torch.float64)
    tokenizer = pieces()
    return NextLetter(model, tokenizer, LETTERS, folded)


@pytest.fixture
def _every_way(monkeypatch):
    monkeypatch.setattr(next_letter, "LIGHT", 0.0)
    monkeypatch.setattr(next_letter, "WAYS", 10**6)
    monkeypatch.setattr(next_letter, "ASKED", 20)
    monkeypatch.setattr(next_letter, "NEVER", 0.0)


def by_hand(speller, ids, rest):
    """P(rest + letter) by going through all tokens of the vocabulary, one model call after the other."""
    spelled = pieces_of(speller.tokenizer, True).bytes
    with torch.no_grad():
        p = speller.model(torch.tensor([ids]))[0, -1].softmax(-1).tolist()
    found = np.zeros(len(LETTERS))
    for id, piece in enumerate(spelled):
        if len(piece) > len(rest) and piece.startswith(rest):
            first = piece[len(rest) :].decode(errors="ignore")[:1]
            whole = first and piece[len(rest) :].startswith(first.encode())
            to = folded(first) if whole else None
            if to is not None:
                found[LETTERS.index(to)] += p[id]
        elif piece and rest.startswith(piece):
            found += p[id] * by_hand(speller, [*ids, id], rest[len(piece) :])
    return found


@pytest.mark.usefixtures("_every_way")
@pytest.mark.parametrize("text", ["the ol", "the old man ran a", "", "dog", "the "])
def test_all_ways_to_cut_the_last_word_are_added_up(speller, text):
    before, space, last = text.rpartition(" ")
    ids = speller.tokenizer.encode(before, special=False) or speller.tokenizer.encode("\n", special=False)
    expected = by_hand(speller, ids, (space + last).encode())
    assert np.allclose(speller([text])[0], expected / expected.sum(), atol=1e-9)


def test_a_hundredth_is_all_that_is_left_out(speller):
    texts = [TEXT[:n] for n in range(1, 30)]
    found = speller(texts)
    assert np.allclose(found.sum(axis=1), 1)
    assert (found > 0).all()
    alone = np.concatenate([speller([text]) for text in texts])
    assert np.allclose(alone, found, atol=1e-12)  # in a batch as by itself


def test_where_tokens_are_letters_it_is_the_model_itself():
    tokenizer = train_tokenizer(["abc cab bac abba"] * 3, kind="char", vocab_size=40)
    model = tiny("gpt2", vocab_size=tokenizer.vocab_size, max_len=64)
    letters = " abc"
    found = NextLetter(model, tokenizer, letters)(["ab c", "bac abba c"])
    for text, row in zip(["ab c", "bac abba c"], found, strict=True):
        with torch.no_grad():
            p = model(torch.tensor([tokenizer.encode(text, special=False)]))[0, -1].softmax(-1)
        says = {letter: float(p[tokenizer.encode(letter, special=False)[0]]) for letter in letters}
        expected = np.array([says[letter] for letter in letters])
        assert np.allclose(row, expected / expected.sum(), atol=1e-5)


def test_long_contexts_and_long_words_fit_into_the_model(speller):
    assert np.isfinite(speller([TEXT * 20, "x" * 200, "ü" * 90])).all()


def test_a_model_plays_the_game(speller):
    game = Game.of(TEXT * 3, known=(0, 5), samples=6)
    told = []
    curve = model_curve(game, speller.model, speller.tokenizer, "tiny", lambda *each: told.append(each))
    assert told[-1] == (12, 12)
    assert [one.n for one in curve.bounds] == [6, 6]
    assert all(0 < bits < 25 for bits in curve.bits)
    bert = tiny("bert")
    with pytest.raises(InputError, match="language model is needed"):
        model_curve(game, bert, speller.tokenizer)
    with pytest.raises(InputError, match="language model is needed"):
        model_curve(game, tiny("gpt2", task="hidden"), speller.tokenizer)
