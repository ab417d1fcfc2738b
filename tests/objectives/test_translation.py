"""Translation: the lecture's sentence, tags, empty rows, and a batch that is the sum of its pairs."""

from typing import Any

import numpy as np
import pytest
import torch
from helpers.tiny_models import TRANSLATORS, VOCAB, tiny
from helpers.toy_recipes import gradient, loss_and_gradient, near, still
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.objectives import IGNORED, mean_loss
from cutaway.objectives.objective import as_tensors
from cutaway.objectives.translation import Translation, disagreement

NO_RANDOM = np.random.default_rng(0)
TOKENS = "<pad> <sos> <eos> I ate an apple Ich habe einen Apfel gegessen <2de> <2en>".split()
ID = {token: id for id, token in enumerate(TOKENS)}


def ids(*texts: str) -> tuple[np.ndarray, np.ndarray]:
    """Words as rows of ids, filled with <pad>, and their lengths."""
    split = [[ID[word] for word in text.split()] for text in texts]
    width = max(map(len, split))
    return np.array([row + [0] * (width - len(row)) for row in split]), np.array([len(row) for row in split])


def batch(sources: list[str], targets: list[str], **more: Any) -> dict[str, np.ndarray]:
    source, source_length = ids(*sources)
    target, target_length = ids(*targets)
    example = np.where(source_length > 0, np.arange(len(sources)), -1)
    return {
        "example": example, "source": source, "source_length": source_length, "target": target,
        "target_length": target_length, **more,
    }  # fmt: skip


def words(row: np.ndarray) -> str:
    return " ".join("-" if id == IGNORED else TOKENS[id] for id in row.tolist())


def test_the_lectures_sentence_by_teacher_forcing() -> None:
    objective = Translation(start_id=ID["<sos>"], end_id=ID["<eos>"])
    lecture = batch(["I ate an apple", "I ate"], ["Ich habe einen Apfel gegessen", "Ich habe gegessen"])
    prepared = objective.prepare(lecture, NO_RANDOM)
    assert [words(row) for row in prepared["source"]] == ["I ate an apple <eos>", "I ate <eos> <pad> <pad>"]
    assert prepared["source_real"].tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    assert [words(row) for row in prepared["ids"]] == [
        "<sos> Ich habe einen Apfel gegessen",
        "<sos> Ich habe gegessen <eos> <pad>",
    ]
    assert [words(row) for row in prepared["targets"]] == [
        "Ich habe einen Apfel gegessen <eos>",
        "Ich habe gegessen <eos> - -",
    ]
    assert objective.counts(prepared) == {"translation": 10}
    assert objective.extra == {"source": 1, "target": 1}


def test_a_tag_in_front_says_which_language_is_wanted() -> None:
    objective = Translation(start_id=ID["<sos>"], end_id=ID["<eos>"], tagged=True)
    both = batch(["I ate", "Ich habe gegessen", ""], ["Ich habe gegessen", "I ate", ""])
    prepared = objective.prepare({**both, "tag": np.array([ID["<2de>"], ID["<2en>"], 0])}, NO_RANDOM)
    assert [words(row) for row in prepared["source"]] == [
        "<2de> I ate <eos> <pad>",
        "<2en> Ich habe gegessen <eos>",
        "<pad> <pad> <pad> <pad> <pad>",
    ]
    assert prepared["source_real"].sum(axis=1).tolist() == [4, 5, 0]
    assert words(prepared["targets"][1]) == "I ate <eos> -"
    assert objective.extra == {"source": 2, "target": 1}


def random_pairs(lengths: list[tuple[int, int]], seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {"example": np.array([i if a else -1 for i, (a, _) in enumerate(lengths)])}
    for side, name in enumerate(("source", "target")):
        length = np.array([pair[side] for pair in lengths])
        inside = np.arange(12) < length[:, None]
        made |= {name: np.where(inside, generator.integers(3, VOCAB, inside.shape), 0), f"{name}_length": length}
    return made


PAIRS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=4)


@pytest.mark.parametrize("name", TRANSLATORS)
@settings(max_examples=8)
@given(lengths=PAIRS, seed=st.integers(0, 99))
def test_a_padded_batch_is_the_sum_of_its_pairs(name: str, lengths: list[tuple[int, int]], seed: int) -> None:
    model, objective = still(name), Translation(start_id=1, end_id=2, smoothing=0.1)
    pairs = random_pairs([*lengths, (0, 0)], seed)
    together = loss_and_gradient(objective, model, objective.prepare(pairs, NO_RANDOM))
    alone = []
    for row, (n_source, n_target) in enumerate(lengths):
        single = {key: value[row : row + 1] for key, value in pairs.items()}
        single |= {"source": single["source"][:, :n_source], "target": single["target"][:, :n_target]}
        alone.append(loss_and_gradient(objective, model, objective.prepare(single, NO_RANDOM)))
    assert near(together[0], torch.stack([loss for loss, _ in alone]).sum(), 1e-10)
    assert near(together[1], torch.stack([slope for _, slope in alone]).sum(0), 1e-10)


@pytest.mark.parametrize("name", TRANSLATORS)
@settings(max_examples=8)
@given(lengths=PAIRS, seed=st.integers(0, 99))
def test_garbage_under_padding_changes_no_bit(name: str, lengths: list[tuple[int, int]], seed: int) -> None:
    model, objective = still(name, torch.float32), Translation(start_id=1, end_id=2)
    clean = objective.prepare(random_pairs([*lengths, (0, 0)], seed), NO_RANDOM)
    generator = np.random.default_rng(seed + 1)
    asked = clean["targets"] != IGNORED
    dirty = clean | {
        "source": np.where(clean["source_real"], clean["source"], generator.integers(0, VOCAB, clean["source"].shape)),
        "ids": np.where(asked, clean["ids"], generator.integers(0, VOCAB, clean["ids"].shape)),
    }
    for ours, theirs in zip(
        loss_and_gradient(objective, model, dirty), loss_and_gradient(objective, model, clean), strict=True
    ):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_batch_of_empty_rows_gives_no_loss_and_no_nan(name: str) -> None:
    model, objective = still(name), Translation(start_id=1, end_id=2, tagged=True)
    empty = {**random_pairs([(0, 0), (0, 0)], 0), "tag": np.array([0, 0])}
    loss = mean_loss(objective, model, objective.prepare(empty, NO_RANDOM))
    assert loss == 0
    assert not gradient(model, loss).any()


# --- two readings that should agree (R-Drop) --------------------------------------------------------------------------


def two_pairs() -> dict[str, np.ndarray]:
    return batch(["I ate an apple", "I ate", ""], ["Ich habe einen Apfel gegessen", "Ich habe gegessen", ""])


def agreeing(agree: float) -> Translation:
    return Translation(start_id=ID["<sos>"], end_id=ID["<eos>"], agree=agree)


def test_without_dropout_two_readings_are_one() -> None:
    """The loss, its gradient and what is counted are those of one reading, and nothing disagrees."""
    model = tiny("transformer", dropout=0.0, dtype=torch.float64).train()
    prepared = agreeing(5.0).prepare(two_pairs(), NO_RANDOM)
    tensors = as_tensors(prepared)
    one, two = agreeing(0.0).losses(model, tensors), agreeing(5.0).losses(model, tensors)
    assert abs(two["agreement"].item()) < 1e-12
    torch.testing.assert_close(one["translation"], two["translation"])
    ours, theirs = (loss_and_gradient(agreeing(agree), model, prepared)[1] for agree in (5.0, 0.0))
    assert near(ours, theirs, 1e-12)
    assert agreeing(5.0).counts(prepared) == {"translation": 10, "agreement": 10}


def test_disagreement_is_both_divergences_of_the_targets_that_count() -> None:
    first, second = torch.randn(2, 4, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    targets = torch.tensor([[1, 2, IGNORED]] * 4)
    p, q = (torch.distributions.Categorical(logits=scores) for scores in (first, second))
    both = torch.distributions.kl_divergence(p, q) + torch.distributions.kl_divergence(q, p)
    torch.testing.assert_close(disagreement(first, second, targets), both[:, :2].sum() / 4)


def test_with_dropout_readings_differ_and_learning_brings_them_together() -> None:
    torch.manual_seed(0)
    model = tiny("transformer", dropout=0.3).train()
    objective = agreeing(50.0)
    tensors = as_tensors(objective.prepare(two_pairs(), NO_RANDOM))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    apart = []
    for _ in range(60):
        terms = objective.losses(model, tensors)
        apart.append(terms["agreement"].item())
        optimizer.zero_grad()
        terms["agreement"].backward()
        optimizer.step()
    assert apart[0] > 0
    assert sum(apart[-10:]) < 0.5 * sum(apart[:10])


def test_measured_at_rest_only_the_translation_counts() -> None:
    model = tiny("transformer", dropout=0.3).eval()
    prepared = agreeing(5.0).prepare(two_pairs(), NO_RANDOM)
    losses = [mean_loss(agreeing(agree), model, prepared) for agree in (0.0, 5.0)]
    torch.testing.assert_close(*losses)
