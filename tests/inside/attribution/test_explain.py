"""Explanations: of every kind of model, by every method; words from pieces; what a model does shows in them."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from decoding.test_alignment import spelling as spelling  # a fixture
from helpers.alignment_translator import translator
from helpers.masked_models import masked, wordpiece
from helpers.text_generators import byte_fallback
from helpers.tiny_models import close, tiny
from helpers.tokenizers_of_bytes import byte_level
from tokenizers import decoders

from cutaway.decoding.translate import translate
from cutaway.errors import InputError
from cutaway.inside.attribution.explain import (
    explain_blank,
    explain_image,
    explain_label,
    explain_next,
    explain_translation,
)
from cutaway.inside.attribution.result import ATTENTION_METHODS, METHODS, Attribution, token_names
from cutaway.tokens.tokenizer_training import train_tokenizer

TEXT = "the old man's naïve dog ran, and"
STEPS: dict[str, dict[str, Any]] = {"integrated_gradients": {"steps": 2}}


def pieces():
    return train_tokenizer([TEXT + " the cat sat down."] * 3, kind="bpe", vocab_size=280)


def check(found: Attribution, n_outputs: int) -> None:
    assert found.scores.shape == (n_outputs, len(found.inputs))
    assert len(found.outputs) == n_outputs
    assert found.scores.isfinite().all()
    said = json.loads(json.dumps(found.to_dict()))
    assert np.array(said["scores"]).shape == found.scores.shape
    assert said["method"] == found.method


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_of_the_next_word(name: str, method: str) -> None:
    tokenizer = pieces()
    model = tiny(name, vocab_size=tokenizer.vocab_size, dtype=torch.float32)
    found = explain_next(model, tokenizer, TEXT, method=method, **STEPS.get(method, {}))
    check(found, 1)
    words = found.words(tokenizer)
    assert words.inputs == ("the", "old", "man's", "naïve", "dog", "ran", ",", "and")
    assert close(words.scores.sum(), found.scores.sum())
    if method not in ATTENTION_METHODS:
        ids = torch.tensor([tokenizer.encode(TEXT, special=False)])
        best = model(ids)[0, -1].log_softmax(dim=-1).topk(4)
        assert min((best.values - found.total[0]).abs()) < 1e-5  # the likeliest that is a word
    several = explain_next(model, tokenizer, TEXT, target=" the cats", method=method, **STEPS.get(method, {}))
    check(several, len(tokenizer.encode(" the cats", special=False)))
    whole = several.words(tokenizer)
    assert whole.outputs == ("the", "cats")
    assert whole.inputs[: len(words.inputs)] == words.inputs
    if method in ATTENTION_METHODS:
        assert close(whole.scores.sum(dim=-1), torch.ones(2))
    else:
        assert close(whole.total.sum(), several.total.sum())
    versus = explain_next(model, tokenizer, TEXT, target=" the", versus=" dog", method=method, **STEPS.get(method, {}))
    assert versus.outputs[0].startswith("the − ")
    with pytest.raises(InputError, match="are the same"):
        explain_next(model, tokenizer, TEXT, target=" the", versus=" the")


@pytest.mark.parametrize("method", METHODS)
def test_of_a_translation_source_and_target_before_have_a_share(method: str) -> None:
    model, tokenizer = translator(), byte_level()
    found = explain_translation(model, tokenizer, "I ate it.", "Hi you", method=method, **STEPS.get(method, {}))
    n_read, n_said = (len(tokenizer.encode(text, special=False)) for text in ("I ate it.", "Hi you"))
    check(found, n_said)
    assert found.parts == (n_read + 1, n_said)  # the source and its end; the start and what is said before
    source, target = found.scores.split(found.parts, dim=1)
    assert source[:, :-1].all()
    assert torch.equal(target != 0, torch.ones_like(target).tril() > 0) or method == "integrated_gradients"
    assert not target.triu(1).any()
    words = found.words(tokenizer)
    assert words.outputs == ("Hi", "you")
    assert words.inputs[:4] == ("I", "ate", "it", ".")
    rows = words.scores.sum(dim=-1)
    assert close(rows, torch.ones(2)) if method in ATTENTION_METHODS else close(rows.sum(), found.scores.sum())
    if method == "integrated_gradients":
        assert not found.scores[:, [n_read, n_read + 1]].any()  # the end and the start are no words
        assert found.of_baseline is not None
        assert words.of_baseline is not None
        pieces = [len(tokenizer.encode(word, special=False)) for word in ("Hi", " you")]
        for whole, parts in ((words.total, found.total), (words.of_baseline, found.of_baseline)):
            assert close(whole, torch.stack([some.sum() for some in parts.split(pieces)]))


def test_a_model_that_spells_backwards_takes_each_letter_from_its_mirror_place(spelling: Any) -> None:
    model, tokenizer = spelling
    word = "c l o t h e s"
    assert translate(model, tokenizer, word) == word[::-1]
    found = {method: explain_translation(model, tokenizer, word, method=method).scores[:, :7] for method in METHODS}
    mirrored = {
        method: sum(place == 6 - i for i, place in enumerate(scores.argmax(dim=1).tolist()))
        for method, scores in found.items()
    }
    assert mirrored["attention_rollout"] == mirrored["value_weighted"] == 7
    assert mirrored["integrated_gradients"] >= 3  # chance is one; letters beside it help, and have their share
    # a model that is sure has no slope: 1 − p is near 0, whatever the letter did
    assert found["gradient_x_input"].abs().max() < 0.1 < found["integrated_gradients"].abs().max()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("name", "pooling"), [("bert", "first"), ("bert", "mean"), ("gpt2", None), ("roformer", "first")]
)
def test_of_a_label(name: str, pooling: str | None, method: str) -> None:
    tokenizer = wordpiece()
    tokenizer.backend.decoder = decoders.WordPiece()
    changes: dict[str, Any] = {} if pooling is None else {"pooling": pooling}
    model = tiny(name, task="classify", n_classes=3, labels=("bad", "so", "good"), **changes)
    found = explain_label(model, tokenizer, "the dogs runs", method=method, **STEPS.get(method, {}))
    check(found, 1)
    ids = torch.tensor([tokenizer.encode("the dogs runs")])
    p = model(ids)[0].log_softmax(dim=-1)
    if method not in ATTENTION_METHODS:
        assert close(found.total[0], p.max())
    assert found.words(tokenizer).inputs == ("[CLS]", "the", "dogs", "runs", "[SEP]")
    pair = explain_label(
        model, tokenizer, ("a man", "he is"), label="so", versus="bad", method=method, **STEPS.get(method, {})
    )
    assert pair.outputs == ("so − bad",)
    assert pair.words(tokenizer).inputs == ("[CLS]", "a", "man", "[SEP]", "he", "is", "[SEP]")
    with pytest.raises(InputError, match="bad, so, good"):
        explain_label(model, tokenizer, "a man", label="fine")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["bert", "roberta", "roformer"])
def test_of_a_blank(name: str, method: str) -> None:
    tokenizer, model = wordpiece(), masked(name)
    found = explain_blank(
        model, tokenizer, "the ___ saw the [MASK]", word="dog", method=method, **STEPS.get(method, {})
    )
    check(found, 2)
    assert found.outputs == ("dog", "dog")
    check(explain_blank(model, tokenizer, "the [MASK]", method=method, **STEPS.get(method, {})), 1)
    with pytest.raises(InputError, match="it must be one"):
        explain_blank(model, tokenizer, "the [MASK]", word="dogs")


@pytest.mark.parametrize("method", METHODS)
def test_of_a_picture(method: str) -> None:
    model = tiny("vit", labels=tuple("abcdefg"))
    picture = np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8)
    found = explain_image(model, picture, method=method, **STEPS.get(method, {}))
    check(found, 1)
    assert found.shape == (2, 2)
    assert found.outputs[0] in "abcdefg"
    with pytest.raises(InputError, match="not tokens"):
        found.words(pieces())
    if method in ATTENTION_METHODS:
        with pytest.raises(InputError, match="between patches"):
            explain_image(model, picture, at="pixels", method=method)
    else:
        assert explain_image(model, picture, at="pixels", method=method, **STEPS.get(method, {})).shape == (8, 8)


def test_black_has_no_share_where_the_baseline_is_black() -> None:
    picture = np.zeros((3, 8, 8), dtype=np.uint8)
    picture[:, 4:, 4:] = 200
    found = explain_image(tiny("vit"), picture)
    assert not found.scores[0, :3].any()
    assert found.scores[0, 3]


@pytest.mark.parametrize("at", ["patches", "pixels"])
@pytest.mark.parametrize(("colour", "byte"), [("black", 0), ("white", 255)])
def test_a_black_picture_is_the_black_baseline_however_it_was_read(colour: str, byte: int, at: str) -> None:
    picture = np.full((3, 8, 8), byte, dtype=np.uint8)
    read = {"mean": (0.4, 0.3, 0.9), "std": (0.2, 0.1, 0.7)}
    found = explain_image(tiny("vit"), picture, at=at, baseline=colour, **read)
    assert not found.scores.any()
    picture[:, :4] = 100
    found = explain_image(tiny("vit"), picture, at=at, **({} if byte == 0 else {"baseline": colour}), **read)
    above, below = found.scores.chunk(2, dim=-1)
    assert above.any()
    assert not below.any()


def test_an_unknown_method_and_a_model_for_something_else_are_refused() -> None:
    tokenizer = pieces()
    model = tiny("gpt2", vocab_size=tokenizer.vocab_size)
    with pytest.raises(InputError, match="integrated_gradients, gradient_x_input"):
        explain_next(model, tokenizer, TEXT, method="saliency")
    with pytest.raises(InputError, match="'baseline' is neither"):
        explain_next(model, tokenizer, TEXT, method="attention_rollout", baseline="zero")
    with pytest.raises(InputError, match="no labels"):
        explain_label(model, tokenizer, TEXT)
    with pytest.raises(InputError, match="does not read images"):
        explain_image(model, np.zeros((3, 8, 8)))
    with pytest.raises(InputError, match="does not continue a text"):
        explain_next(translator(), byte_level(), TEXT)


def test_a_token_is_called_by_what_it_adds_and_half_a_character_by_what_it_is_alone() -> None:
    """Of bytes of their own the last one adds the character."""
    text, parts = "a 🙂 ü日b", (byte_level(), byte_fallback())
    found = [token_names(tokenizer, tokenizer.encode(text, special=False)) for tokenizer in parts]
    assert found[0] == ("a", " ", "�", "�", "�", " �", "�", "�", "�", "�", "b")
    assert found[1] == ("a", " ", "<0xF0>", "<0x9F>", "<0x99>", "🙂", " ", "<0xC3>", "ü", "<0xE6>", "<0x97>", "日", "b")
