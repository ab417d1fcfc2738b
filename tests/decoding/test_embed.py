"""Vectors of texts: of length 1, the same in any batch, the mean of what the model makes of the tokens."""

import numpy as np
import pytest
import torch
from helpers.classifiers import SENTENCES, wordpiece
from helpers.tiny_models import DECODERS, ENCODERS, TRANSLATORS, tiny

from cutaway import embed
from cutaway.errors import InputError
from cutaway.tokens import Tokenizer

TEXTS = [*SENTENCES, "man", "a man saw the dog and the dog saw it"]


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return wordpiece()


@pytest.mark.parametrize("name", [*ENCODERS, *DECODERS, *TRANSLATORS])
@torch.no_grad()
def test_a_vector_is_the_mean_of_the_states_in_any_batch(words: Tokenizer, name: str) -> None:
    model = tiny(name)
    found = embed(model, words, TEXTS)
    assert found.shape == (len(TEXTS), 24)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1)
    for row, text in enumerate(TEXTS):
        ids = torch.tensor([words.encode(text)])
        hidden = model.encode(ids) if name in TRANSLATORS else model.hidden(ids)
        mean = hidden[0].mean(dim=0)
        assert found[row] == pytest.approx((mean / mean.norm()).numpy(), abs=1e-9)
    for batch_tokens in (1, 20):
        assert embed(model, words, TEXTS, batch_tokens=batch_tokens) == pytest.approx(found, abs=1e-9)


@torch.no_grad()
def test_the_first_state_alone(words: Tokenizer) -> None:
    model = tiny("bert")
    found = embed(model, words, TEXTS, pool="first")
    for row, text in enumerate(TEXTS):
        state = model.hidden(torch.tensor([words.encode(text)]))[0, 0]
        assert found[row] == pytest.approx((state / state.norm()).numpy(), abs=1e-9)


def test_a_long_text_is_refused_or_cut_when_asked(words: Tokenizer) -> None:
    model, long = tiny("bert"), "dog " * 40
    with pytest.raises(InputError, match=r"text 2 has 42 tokens; .* at most 32: cut=32"):
        embed(model, words, ["a", long])
    assert embed(model, words, [long], cut=7) == pytest.approx(embed(model, words, ["dog " * 5]))


def test_nothing_in_nothing_out(words: Tokenizer) -> None:
    assert embed(tiny("bert"), words, []).shape == (0, 24)


@pytest.mark.parametrize(
    ("model", "texts", "options", "said"),
    [
        (lambda: tiny("bert"), "a man", {}, "put it in a list"),
        (lambda: tiny("gpt2"), ["a"], {"pool": "first"}, "has seen only itself"),
        (lambda: tiny("vit"), ["a"], {}, "reads pictures"),
        (lambda: tiny("bert"), ["a"], {"cut": 33}, "not between 1 and max_len=32"),
        (lambda: tiny("bert").train(), ["a"], {}, r"call model\.eval"),
    ],
)
def test_errors_name_the_fix(words: Tokenizer, model, texts: list, options: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        embed(model(), words, texts, **options)
