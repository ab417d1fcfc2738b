"""Filling blanks: the probabilities are the model's, whatever a blank is called and whatever else is in the batch."""

import pytest
import torch
from helpers.bert_tokenizer import bert_tokenizer
from helpers.masked_models import WORDS, masked, wordpiece
from helpers.tiny_models import tiny
from tokenizers import AddedToken

from cutaway import fill
from cutaway.errors import InputError
from cutaway.tokens import Tokenizer

TEXTS = ["the [MASK] barked .", "[MASK] man", "no one saw the [MASK] and the [MASK]", "he is [MASK] . it is"]


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return wordpiece()


@pytest.mark.parametrize("name", ["bert", "roberta", "roformer"])
@torch.no_grad()
def test_probabilities_are_the_models_alone_and_in_any_batch(words: Tokenizer, name: str) -> None:
    model = masked(name)
    together = [fill(model, words, TEXTS, k=4, batch_tokens=n) for n in (1, 20, 1000)]
    for row, text in enumerate(TEXTS):
        ids = torch.tensor([words.encode(text)])
        p = model(ids)[0].softmax(dim=-1)
        places = (ids[0] == words.mask_id).nonzero()[:, 0].tolist()
        alone = fill(model, words, text, k=4)
        assert len(alone.blanks) == len(places) == text.count("[MASK]")
        for place, guesses in zip(places, alone.blanks, strict=True):
            special = [*words.special_ids().values()]
            listed = [i for i in p[place].argsort(descending=True).tolist() if i < words.vocab_size]
            assert [guess.id for guess in guesses] == [i for i in listed if i not in special][:4]
            assert [guess.probability for guess in guesses] == pytest.approx([float(p[place, g.id]) for g in guesses])
        for answers in together:
            assert answers[row].sentence == alone.sentence
            for here, there in zip(answers[row].blanks, alone.blanks, strict=True):
                assert [g.id for g in here] == [g.id for g in there]
                assert [g.probability for g in here] == pytest.approx([g.probability for g in there])


def test_padding_is_no_blank() -> None:
    """Rows are padded with 0, which may be the number of the mask."""
    tokenizer = bert_tokenizer(["[MASK]", *WORDS], AddedToken("[MASK]"))
    assert tokenizer.mask_id == 0
    alone = [fill(masked(), tokenizer, text) for text in TEXTS]
    together = fill(masked(), tokenizer, TEXTS)
    assert [len(one.blanks) for one in together] == [1, 1, 2, 1]
    assert [one.sentence for one in together] == [one.sentence for one in alone]


def test_a_model_for_pretraining_fills_too(words: Tokenizer) -> None:
    assert len(fill(masked(task="pretrain"), words, TEXTS[2]).blanks) == 2


@pytest.mark.parametrize("blank", ["[MASK]", "[mask]", "<mask>", "___", "______"])
@pytest.mark.parametrize("mask", ["[MASK]", "<mask>"])
def test_a_blank_has_many_names(mask: str, blank: str) -> None:
    model, tokenizer = masked(), wordpiece(mask, lstrip=mask == "<mask>")
    expected = fill(model, tokenizer, f"the {mask} barked .")
    assert fill(model, tokenizer, f"the {blank} barked .").blanks == expected.blanks
    assert expected.sentence == f"the {expected.blanks[0][0].word} barked ."


def test_the_sentence_keeps_what_was_written(words: Tokenizer) -> None:
    model = masked()
    filled = fill(model, words, "THE   [MASK],  then ___!")
    first, second = (guesses[0].word for guesses in filled.blanks)
    assert filled.sentence == f"THE   {first},  then {second}!"
    model.head.words.bias.data[words.id("##s")] = 1e3  # a piece is glued to the word before it
    assert fill(model, words, "the dog [MASK] bark").sentence == "the dogs bark"


def test_as_many_words_as_there_are(words: Tokenizer) -> None:
    guesses = fill(masked(), words, "the [MASK]", k=1000).blanks[0]
    assert {guess.word for guess in guesses} == set(WORDS)


@pytest.mark.parametrize(
    ("model", "text", "options", "said"),
    [
        (lambda: tiny("gpt2"), "a [MASK]", {}, "cannot fill blanks: use one with task='masked_language_model'"),
        (lambda: tiny("bert", task="classify", n_classes=2), "a [MASK]", {}, "cannot fill blanks"),
        (masked, "a dog", {}, r"text 1 has no blank: write \[MASK\]"),
        (masked, "a " * 40 + "[MASK]", {}, "43 tokens; this model reads at most 32: shorten"),
        (masked, "a [MASK]", {"k": 0}, "k=0"),
        (lambda: masked().train(), "a [MASK]", {}, r"call model\.eval"),
    ],
)
def test_errors_name_the_fix(words: Tokenizer, model, text: str, options: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        fill(model(), words, text, **options)


def test_a_tokenizer_without_a_mask_is_refused() -> None:
    with pytest.raises(InputError, match="has no mask token"):
        fill(masked(), bert_tokenizer(WORDS), "a [MASK]")
