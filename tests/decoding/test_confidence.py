"""How sure a model was: its words' probabilities multiply to that of the whole text."""

from math import exp, log

import pytest
import torch
from helpers.tiny_models import tiny

from cutaway.decoding.confidence import confidence_of
from cutaway.decoding.generate import write_texts
from cutaway.decoding.options import GenerationOptions
from cutaway.tokens.tokenizer_training import train_tokenizer

TEXTS = ["the old man's naïve dog ran, and the cat sat down."] * 3
PROMPT = "the dog"


@pytest.fixture(scope="module")
def told():
    """A model of short pieces, so that most words have several."""
    tokenizer = train_tokenizer(TEXTS, kind="bpe", vocab_size=280)
    return tiny("gpt2", vocab_size=tokenizer.vocab_size + 3, dtype=torch.float32), tokenizer


@pytest.mark.parametrize("seed", range(5))
def test_the_words_together_are_as_likely_as_the_text(told, seed: int) -> None:
    model, tokenizer = told
    (written,) = write_texts(model, tokenizer, [PROMPT], GenerationOptions(max_tokens=20, temperature=1.0, seed=seed))[
        0
    ]
    words = confidence_of(model, tokenizer, PROMPT, written.ids)
    assert "".join(word.text for word in words) == "".join(written.text.split())
    assert sum(log(word.probability) for word in words) == pytest.approx(written.score * len(written.ids), rel=1e-4)


@torch.no_grad()
def test_a_word_is_the_product_of_its_pieces_and_its_place_has_candidates(told) -> None:
    model, tokenizer = told
    front, behind = tokenizer.encode(PROMPT, special=False), tokenizer.encode(" barked, naïve", special=False)
    p = model(torch.tensor([[*front, *behind]]))[0].softmax(dim=-1)
    comma = behind.index(tokenizer.encode(",", special=False)[0])
    barked, mark, naive = confidence_of(model, tokenizer, PROMPT, behind, k=3)
    assert (barked.text, mark.text, naive.text) == ("barked", ",", "naïve")
    each = [log(p[len(front) + i - 1, id]) for i, id in enumerate(behind)]
    assert barked.probability == pytest.approx(exp(sum(each[:comma])), rel=1e-4)
    assert mark.probability == pytest.approx(exp(each[comma]), rel=1e-4)
    assert naive.probability == pytest.approx(exp(sum(each[comma + 1 :])), rel=1e-4)
    silent = [*tokenizer.special_ids().values(), *range(tokenizer.vocab_size, tokenizer.vocab_size + 3)]
    for word, place in ((barked, 0), (mark, comma), (naive, comma + 1)):
        row = p[len(front) + place - 1].clone()
        row[silent] = -1.0
        best = row.topk(3)
        assert [one.id for one in word.candidates] == best.indices.tolist()
        assert [one.probability for one in word.candidates] == pytest.approx(best.values.tolist(), rel=1e-4)


def test_the_end_is_no_word(told) -> None:
    model, tokenizer = told
    ids = tokenizer.encode(" barked", special=False)
    ends = tiny("gpt2", vocab_size=tokenizer.vocab_size + 3, dtype=torch.float32, end_ids=(2,))
    assert confidence_of(ends, tokenizer, PROMPT, [*ids, 2]) == confidence_of(model, tokenizer, PROMPT, ids)
    assert confidence_of(ends, tokenizer, PROMPT, [2]) == []
