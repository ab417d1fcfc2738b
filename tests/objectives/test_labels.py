"""Labels: of texts, pairs and tokens, and numbers; with language modelling beside them; rows without an example."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_models import VOCAB, tiny
from helpers.toy_recipes import gradient, loss_and_gradient, near
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.errors import ConfigError
from cutaway.model.model import Model
from cutaway.objectives import IGNORED, as_tensors, mean_loss, next_token_loss
from cutaway.objectives.classify import Labels
from cutaway.objectives.masked import Hiding

CLS, SEP, MASK, EOS = 1, 2, 3, 2
HIDING = Hiding(mask_id=MASK, vocab_size=VOCAB, special_ids=(0, 1, 2, 3))


def texts(lengths: list[int], width: int, name: str = "text", seed: int = 0) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(seed).integers(4, VOCAB, (len(lengths), width))
    inside = np.arange(width) < np.array(lengths)[:, None]
    return {name: np.where(inside, ids, 0), f"{name}_length": np.array(lengths)}


def examples(lengths: list[int], label: Any, **more: Any) -> dict[str, np.ndarray]:
    """A batch; a text without a token is a row without an example."""
    there = np.array(lengths) > 0
    return {"example": np.where(there, np.arange(len(lengths)), -1), "label": np.array(label), **more}


def no_random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_text_as_an_encoder_reads_it_and_as_a_decoder_does() -> None:
    batch = examples(
        [3, 1, 0], [1, 0, 7], text=np.array([[5, 6, 7], [8, 0, 0], [0, 0, 0]]), text_length=np.array([3, 1, 0])
    )
    read = Labels("classify", cls_id=CLS, sep_id=SEP, segments=True).prepare(batch, no_random())
    assert read["ids"].tolist() == [[CLS, 5, 6, 7, SEP], [CLS, 8, SEP, 0, 0], [0, 0, 0, 0, 0]]
    assert read["real"].sum(axis=1).tolist() == [5, 3, 0]
    assert read["targets"].tolist() == [1, 0, IGNORED]
    assert not read["segments"].any()
    read = Labels("classify", sep_id=EOS).prepare(batch, no_random())
    assert read["ids"].tolist() == [[5, 6, 7, EOS], [8, EOS, 0, 0], [0, 0, 0, 0]]
    assert "segments" not in read


def test_a_pair_stands_behind_one_cls_and_each_part_has_its_sep() -> None:
    pair = {"first": np.array([[5, 6, 0, 0, 0], [7, 0, 0, 0, 0]]), "first_length": np.array([2, 1])}
    pair |= {"second": np.array([[8, 9, 10, 0, 0], [11, 12, 0, 0, 0]]), "second_length": np.array([3, 2])}
    read = Labels("classify", cls_id=CLS, sep_id=SEP, segments=True).prepare(
        examples([2, 1], [0, 1], **pair), no_random()
    )
    assert read["ids"].tolist() == [[CLS, 5, 6, SEP, 8, 9, 10, SEP], [CLS, 7, SEP, 11, 12, SEP, 0, 0]]
    assert read["segments"].tolist() == [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 0, 0]]


@pytest.mark.parametrize("front", [None, CLS])
def test_tags_stand_under_their_tokens(front: int | None) -> None:
    """−100 inside a text marks the later pieces of a word."""
    text = np.array([[5, 6, 7], [8, 9, 0]])
    batch = examples([3, 2], [[2, IGNORED, 1], [1, 2, 0]], text=text, text_length=np.array([3, 2]))
    read = Labels("tag", cls_id=front, sep_id=SEP).prepare(batch, no_random())
    at = int(front is not None)
    for row, (n, tags) in enumerate([(3, [2, IGNORED, 1]), (2, [1, 2])]):
        assert read["ids"][row, at : at + n].tolist() == text[row, :n].tolist()
        assert read["targets"][row, at : at + n].tolist() == tags
        assert (np.delete(read["targets"][row], range(at, at + n)) == IGNORED).all()


@pytest.mark.parametrize("name", ["bert", "gpt2"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_classes_by_hand(name: str, smoothing: float) -> None:
    model = tiny(name, task="classify", n_classes=3)
    objective = Labels("classify", cls_id=CLS if name == "bert" else None, sep_id=SEP, smoothing=smoothing)
    prepared = objective.prepare(examples([5, 2, 7], [0, 2, 1], **texts([5, 2, 7], 7)), no_random())
    batch = as_tensors(prepared)
    scores = objective.answers(model, batch)
    torch.testing.assert_close(scores, model(batch["ids"], real=batch["real"]))
    by_hand = F.cross_entropy(scores, torch.tensor([0, 2, 1]), label_smoothing=smoothing)
    torch.testing.assert_close(mean_loss(objective, model, prepared), by_hand, rtol=1e-10, atol=0)


def test_numbers_by_hand() -> None:
    model, objective = tiny("bert", task="regress"), Labels("regress", cls_id=CLS, sep_id=SEP)
    prepared = objective.prepare(examples([5, 0, 7], [0.5, 9.0, -1.5], **texts([5, 0, 7], 7)), no_random())
    assert objective.counts(prepared) == {"label": 2}
    said = objective.answers(model, as_tensors(prepared))[:, 0]
    by_hand = ((said[0] - 0.5) ** 2 + (said[2] + 1.5) ** 2) / 2
    torch.testing.assert_close(mean_loss(objective, model, prepared), by_hand, rtol=1e-10, atol=0)


@pytest.mark.parametrize("name", ["gpt", "gpt2", "llama"])
def test_a_decoder_learns_labels_and_the_next_token(name: str) -> None:
    """L = L(labels) + λ · L(next token), each a mean over its own targets."""
    model, auxiliary = tiny(name, task="classify", n_classes=3), 0.5
    words = tiny(name)
    words.load_state_dict({**words.state_dict(), **{n: p for n, p in model.state_dict().items() if "head" not in n}})
    words.head.matrix.data.copy_(model.embedding.tokens.matrix)  # type: ignore[union-attr, operator, arg-type]
    objective = Labels("classify", sep_id=EOS, auxiliary=auxiliary)
    lengths, labels = [5, 2, 7], [0, 2, 1]
    batch = examples(lengths, labels, **texts(lengths, 7))
    prepared = objective.prepare(batch, no_random())
    assert objective.counts(prepared) == {"label": 3, "auxiliary": 5 + 2 + 7}
    rows = [torch.tensor([[*batch["text"][i, :n].tolist(), EOS]]) for i, n in enumerate(lengths)]
    label_loss = F.cross_entropy(torch.cat([model(row) for row in rows]), torch.tensor(labels))
    word_loss = sum(next_token_loss(words, row) * (row.shape[1] - 1) for row in rows) / 14
    torch.testing.assert_close(
        mean_loss(objective, model, prepared), label_loss + auxiliary * word_loss, rtol=1e-10, atol=0
    )


def test_an_encoder_learns_labels_and_hidden_words() -> None:
    """The label is read off the whole text, in a pass of its own; the hidden words off the other."""
    model = tiny("bert", task="classify", n_classes=3)
    objective = Labels("classify", cls_id=CLS, sep_id=SEP, auxiliary=0.3, hiding=HIDING)
    prepared = objective.prepare(examples([9, 4], [0, 2], **texts([9, 4], 9)), no_random())
    assert (prepared["ids"] != MASK).all()
    batch, chosen = as_tensors(prepared), prepared["words"] != IGNORED
    assert chosen.sum(axis=1).tolist() == [1, 1]
    label_loss = F.cross_entropy(model(batch["ids"], real=batch["real"]), torch.tensor([0, 2]))
    hidden = model.hidden(batch["hidden_ids"], real=batch["real"])
    scores = hidden @ model.embedding.tokens.matrix.T  # type: ignore[union-attr, operator]
    word_loss = F.cross_entropy(scores[torch.from_numpy(chosen)], batch["words"][torch.from_numpy(chosen)])
    torch.testing.assert_close(mean_loss(objective, model, prepared), label_loss + 0.3 * word_loss, rtol=1e-10, atol=0)
    bare = Labels("classify", cls_id=CLS, sep_id=SEP, auxiliary=0.3)
    prepared = bare.prepare(examples([9], [0], **texts([9], 9)), no_random())
    with pytest.raises(ConfigError, match="hiding"):
        mean_loss(bare, model, prepared)


MODELS: dict[str, tuple[Model, Labels]] = {}


def asked(task: str, name: str, auxiliary: float) -> tuple[Model, Labels]:
    """A model and what it is asked, made once."""
    key = f"{task} {name} {auxiliary}"
    if key not in MODELS:
        numbers = {} if task == "regress" else {"n_classes": 3}
        ends = {"cls_id": CLS, "sep_id": SEP, "segments": True} if name == "bert" else {"sep_id": EOS}
        hiding = HIDING if name == "bert" and auxiliary else None
        MODELS[key] = (tiny(name, task=task, **numbers), Labels(task, auxiliary=auxiliary, hiding=hiding, **ends))
    return MODELS[key]


@pytest.mark.parametrize(
    ("task", "name", "auxiliary"),
    [("classify", "bert", 0.0), ("regress", "bert", 0.0), ("tag", "bert", 0.0), ("classify", "bert", 0.5),
     ("classify", "gpt2", 0.0), ("regress", "gpt2", 0.0), ("classify", "gpt2", 0.5)],
)  # fmt: skip
@settings(max_examples=6)
@given(lengths=st.lists(st.integers(0, 8), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_rows_without_an_example_change_neither_loss_nor_gradient(
    task: str, name: str, auxiliary: float, lengths: list[int], seed: int
) -> None:
    model, objective = asked(task, name, auxiliary)
    generator = np.random.default_rng(seed)
    label = generator.integers(0, 3, (len(lengths), 8)) if task == "tag" else generator.integers(0, 3, len(lengths))
    prepared = objective.prepare(examples(lengths, label, **texts(lengths, 8, seed=seed)), np.random.default_rng(seed))
    there = np.array(lengths) > 0
    ours = mean_loss(objective, model, prepared)
    slope = gradient(model, ours)
    if not there.any():
        assert ours == 0
        assert not slope.any()
        return
    fewer = {key: value[there] for key, value in prepared.items()}
    theirs = mean_loss(objective, model, fewer)
    assert near(ours, theirs, 1e-10)
    assert near(slope, gradient(model, theirs), 1e-10)


@settings(max_examples=8)
@given(lengths=st.lists(st.integers(1, 8), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_a_padded_batch_is_the_sum_of_its_rows(lengths: list[int], seed: int) -> None:
    model, objective = asked("classify", "gpt2", 0.5)
    label = np.random.default_rng(seed).integers(0, 3, len(lengths))
    prepared = objective.prepare(examples(lengths, label, **texts(lengths, 8, seed=seed)), no_random())
    loss, slope = loss_and_gradient(objective, model, prepared)
    alone = []
    for i, n in enumerate(lengths):
        row = {key: v[i : i + 1] if v.ndim == 1 else v[i : i + 1, : n + 1] for key, v in prepared.items()}
        alone.append(loss_and_gradient(objective, model, row))
    assert near(loss, torch.stack([one for one, _ in alone]).sum(), 1e-10)
    assert near(slope, torch.stack([one for _, one in alone]).sum(0), 1e-10)


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'guess' is not one of classify, tag, regress"):
        Labels("guess")
