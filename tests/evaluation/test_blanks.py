"""Filled blanks: the loss of training, on blanks that depend on the seed and the row alone."""

import numpy as np
import pytest
import torch
from helpers.classifiers import SENTENCES
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import byte_level

from cutaway.errors import InputError
from cutaway.evaluation import evaluate
from cutaway.evaluation.blanks import fill_blanks
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer
from cutaway.tokens.tokenizer_training import train_tokenizer

TEXTS = [" ".join(SENTENCES) * 3, "", "the dog", " ".join(reversed(SENTENCES))]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(SENTENCES, kind="wordpiece", vocab_size=60)


def filler(tokenizer: Tokenizer, name: str = "bert", **changes) -> Model:
    return tiny(name, vocab_size=tokenizer.vocab_size, **{"task": "masked_language_model", **changes})


def documents(tokenizer: Tokenizer) -> list[list[int]]:
    return tokenizer.encode_batch(TEXTS, special=False)


@pytest.mark.parametrize(("name", "task"), [("bert", "masked_language_model"), ("bert", "pretrain")])
def test_the_loss_is_that_of_training_row_by_row(name: str, task: str, tokenizer: Tokenizer, monkeypatch) -> None:
    """What the objective itself says of the same blanks; and the batch changes nothing."""
    from cutaway.evaluation import blanks
    from cutaway.objectives.masked import Masked
    from cutaway.objectives.objective import as_tensors

    model, asked = filler(tokenizer, name, task=task), []
    hidden = blanks._hidden
    monkeypatch.setattr(blanks, "_hidden", lambda *told: asked.append((told[0], hidden(*told))) or asked[-1][1])
    alone = fill_blanks(model, tokenizer, documents(tokenizer), context=16, batch=1)
    losses = [Masked.losses(objective, model, as_tensors(arrays))["masked"].item() for objective, arrays in asked]
    assert np.allclose(alone.nats, losses, rtol=1e-6)
    assert all(arrays["ids"].shape[1] <= 16 for _, arrays in asked)
    together = fill_blanks(model, tokenizer, documents(tokenizer), context=16, batch=5)
    assert np.allclose(alone.nats, together.nats, rtol=1e-10)
    assert (alone.right == together.right).all()
    assert (alone.blanks == together.blanks).all()


def test_blanks_are_whole_words_and_places_without_one_are_no_answer(tokenizer: Tokenizer, monkeypatch) -> None:
    from cutaway.evaluation import blanks

    objectives, hidden = [], blanks._hidden
    monkeypatch.setattr(blanks, "_hidden", lambda *told: objectives.append(told[0]) or hidden(*told))
    model = filler(tokenizer)
    last = next(p for p in model.head.parameters() if p.shape == (tokenizer.vocab_size,))
    with torch.no_grad():
        last[0] += 1e6  # what fills places up, and is never hidden
    found = fill_blanks(model, tokenizer, documents(tokenizer), context=16, batch=8)
    assert len(set(found.blanks)) > 1
    assert found.right.sum() == 0
    assert objectives[0].hiding.continues == tuple(tokenizer.continues_word())
    assert any(objectives[0].hiding.continues)


def test_the_seed_draws_the_blanks(tokenizer: Tokenizer) -> None:
    model = filler(tokenizer)
    first, again, other = (evaluate(model, tokenizer, TEXTS, seed=seed, resamples=50) for seed in (0, 0, 1))
    assert first.scores == again.scores
    assert first.scores["loss"] != other.scores["loss"]
    assert first.intervals["loss"].low < first.scores["loss"] < first.intervals["loss"].high
    assert (first.task, first.n, first.settings["seed"]) == ("masked_language_model", 4, 0)


def test_a_model_that_knows_the_answer_is_always_right(tokenizer: Tokenizer) -> None:
    """One word, again and again: a head whose bias says nothing else."""
    model = filler(tokenizer)
    (word,) = set(tokenizer.encode("dog", special=False))
    last = next(p for p in model.head.parameters() if p.shape == (tokenizer.vocab_size,))
    with torch.no_grad():
        last[word] += 1000.0
    report = evaluate(model, tokenizer, ["dog " * 50], resamples=0)
    assert report.scores["accuracy"] == 1.0
    assert report.scores["loss"] < 1e-6
    assert evaluate(model, tokenizer, ["man " * 50], resamples=0).scores["accuracy"] == 0.0


def test_what_cannot_be_asked_is_refused(tokenizer: Tokenizer) -> None:
    model = filler(tokenizer)
    with pytest.raises(InputError, match="no text, no score"):
        evaluate(model, tokenizer, [""])
    with pytest.raises(InputError, match="context=2 has no room"):
        evaluate(model, tokenizer, ["a man"], context=2)
    rows = fill_blanks(model, tokenizer, documents(tokenizer), context=3)  # a token by itself
    assert len(rows.nats) == sum(map(len, documents(tokenizer)))
    with pytest.raises(InputError, match="has no mask token"):
        evaluate(model, byte_level(), ["a man"])
