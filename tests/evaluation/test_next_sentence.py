"""Does the second part follow? The pairs and the question of training, with no word hidden."""

import numpy as np
import pytest
import torch
from helpers.tiny_models import tiny

from cutaway.data.sentence_pairs import SentencePairs
from cutaway.evaluation import evaluate
from cutaway.evaluation.next_sentence import score_next_sentences
from cutaway.model.heads import PretrainingHead
from cutaway.model.model import Model
from cutaway.objectives.masked import IGNORED, Hiding, Pretraining
from cutaway.objectives.objective import as_tensors
from cutaway.tokens import Tokenizer
from cutaway.tokens.tokenizer_training import train_tokenizer

LINES = ["the dog saw a man. he ran. ", "a man saw the dog! it barked. did he run? "]
TEXTS = [*(LINES[i % 2] * (3 + i) for i in range(6)), "the dog saw the man " * 30]  # the last has no sentence's end
CONTEXT = 24


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(LINES, kind="wordpiece", vocab_size=60)


def pretrained(tokenizer: Tokenizer) -> Model:
    return tiny("bert", vocab_size=tokenizer.vocab_size, task="pretrain", max_len=32)


def documents(tokenizer: Tokenizer) -> list[list[int]]:
    return tokenizer.encode_batch(TEXTS, special=False)


def asked_in_training(model: Model, tokenizer: Tokenizer, pairs: SentencePairs) -> list[bool]:
    """The same pairs as the objective makes rows of them, with what it hides shown again."""
    hiding = Hiding(mask_id=tokenizer.mask_id, vocab_size=tokenizer.vocab_size, special_ids=(), share=0.15)
    objective = Pretraining(hiding, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id)
    right: list[bool] = []
    for step in range(pairs.steps):
        batch = as_tensors(objective.prepare(pairs(step), np.random.default_rng(step)))
        there = batch["targets"] != IGNORED
        for row, (at, targets, real) in enumerate(zip(batch["at"], batch["targets"], there, strict=True)):
            batch["ids"][row, at[real]] = targets[real]  # what was hidden is shown again
        hidden = model.hidden(batch["ids"], real=batch["real"], segments=batch["segments"])
        assert isinstance(model.head, PretrainingHead)
        said = model.head.next_sentence(hidden, batch["real"]).argmax(dim=-1)
        right += (said == batch["follows"])[batch["follows"] != IGNORED].tolist()
    return right


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 4])
def test_the_answers_are_those_of_the_objective(batch: int, tokenizer: Tokenizer, monkeypatch) -> None:
    from cutaway.evaluation import next_sentence

    made: list[SentencePairs] = []
    monkeypatch.setattr(next_sentence, "SentencePairs", lambda *a, **k: made.append(SentencePairs(*a, **k)) or made[-1])
    model = pretrained(tokenizer)
    for name, parameter in model.named_parameters():
        if "segment" in name:
            parameter.normal_(
                0, 3, generator=torch.Generator().manual_seed(0)
            )  # so that it matters which part is which
    right = score_next_sentences(model, tokenizer, documents(tokenizer), context=CONTEXT, batch=batch)
    assert right.tolist() == asked_in_training(model, tokenizer, made[0])
    starts = np.concatenate([made[0].windows.starts(step) for step in range(made[0].steps)])
    assert starts.tolist() == [
        made[0].seq_len * i for i in range(made[0].n_examples)
    ]  # each window once, from the first
    other = score_next_sentences(model, tokenizer, documents(tokenizer), context=CONTEXT, batch=batch, seed=1)
    assert (made[0].seed, made[1].seed) == (0, 1)
    assert len(other) != len(right) or (other != right).any()
    assert 0 < right.sum() < len(right)  # an untrained model guesses


def test_who_always_says_yes_is_right_where_it_follows_and_nowhere_else(tokenizer: Tokenizer) -> None:
    model = pretrained(tokenizer)
    assert isinstance(model.head, PretrainingHead)
    found = {}
    for name, bias in (("yes", [1e4, 0.0]), ("no", [0.0, 1e4])):
        with torch.no_grad():
            model.head.next_sentence.classes.bias.copy_(torch.tensor(bias))
        found[name] = score_next_sentences(model, tokenizer, documents(tokenizer), context=CONTEXT)
    assert (found["yes"] != found["no"]).all()
    assert 0 < found["yes"].sum() < len(found["yes"])


def test_evaluate_asks_models_that_learnt_it_and_says_when_there_is_too_little(tokenizer: Tokenizer) -> None:
    model = pretrained(tokenizer)
    report = evaluate(model, tokenizer, TEXTS, context=CONTEXT, resamples=50)
    right = score_next_sentences(model, tokenizer, documents(tokenizer), context=CONTEXT)
    assert report.scores["next_sentence"] == right.mean()
    assert report.settings["pairs"] == len(right)
    assert report.intervals["next_sentence"].low < right.mean() < report.intervals["next_sentence"].high
    short = evaluate(model, tokenizer, ["the dog ran."], context=CONTEXT)
    assert "next_sentence" not in short.scores
    assert "were not scored" in short.notes[0]
    blanks_only = tiny("bert", vocab_size=tokenizer.vocab_size, task="masked_language_model", max_len=32)
    assert set(evaluate(blanks_only, tokenizer, TEXTS, context=CONTEXT).scores) == {"loss", "accuracy"}
