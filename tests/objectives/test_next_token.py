"""Next token: shifted once, ends kept, borders respected; documents packed into a row learn as each would alone."""

import numpy as np
import pytest
import torch
from helpers.tiny_models import DECODERS, VOCAB, some_ids
from helpers.toy_recipes import gradient, loss_and_gradient, near, still
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.objectives import IGNORED, NextToken, mean_loss, next_token_loss

NO_RANDOM = np.random.default_rng(0)
LENGTHS = st.lists(st.integers(1, 8), min_size=1, max_size=4)  # the tiny models know 32 positions


def rows(lengths: list[int], width: int, seed: int = 0, filler: int = 0) -> np.ndarray:
    """Random tokens, and the filler behind each row's length."""
    ids = np.random.default_rng(seed).integers(1, VOCAB, (len(lengths), width))
    return np.where(np.arange(width) < np.array(lengths)[:, None], ids, filler)


@given(st.integers(1, 4), st.integers(2, 9), st.integers(0, 99))
def test_the_target_at_a_position_is_the_token_after_it(n: int, width: int, seed: int) -> None:
    text = rows([width] * n, width, seed)
    prepared = NextToken().prepare({"text": text}, NO_RANDOM)
    assert (prepared["ids"] == text[:, :-1]).all()
    assert (prepared["targets"] == text[:, 1:]).all()


def test_the_loss_does_not_shift_a_second_time() -> None:
    model, ids = still("gpt2"), some_ids(2, 9)
    log_p = model(ids[:, :-1]).log_softmax(-1)
    by_hand = -sum(log_p[row, at, ids[row, at + 1]] for row in range(2) for at in range(8)) / 16
    torch.testing.assert_close(next_token_loss(model, ids), by_hand, rtol=1e-12, atol=0)
    prepared = NextToken().prepare({"text": ids.numpy()}, NO_RANDOM)
    torch.testing.assert_close(mean_loss(NextToken(), model, prepared), by_hand, rtol=1e-12, atol=0)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.sampled_from([[], [7], [0]]), st.booleans())
def test_where_padding_and_end_are_one_token_every_end_is_still_asked_for(
    lengths: list[int], starts: list[int], ends: bool
) -> None:
    """<pad> = <eos> = 0: whether a token counts is a matter of its place, not of its id."""
    text = rows(lengths, 10)
    if not ends:  # the end stands in the corpus already
        text[[n > 0 for n in lengths], np.maximum(np.array(lengths) - 1, 0)[np.array(lengths) > 0]] = 0
    objective = NextToken(start_id=[*starts, None][0], end_id=0 if ends else None)
    prepared = objective.prepare({"text": text, "text_length": np.array(lengths)}, NO_RANDOM)
    for row, n in enumerate(lengths):
        whole = starts + text[row, :n].tolist() + [0] * ends if n else []
        counted = prepared["targets"][row] != IGNORED
        assert prepared["targets"][row][counted].tolist() == whole[1:]
        assert prepared["ids"][row][: len(whole[1:])].tolist() == whole[:-1]
        assert not n or len(whole) < 2 or prepared["targets"][row][counted][-1] == 0
    assert prepared["ids"].shape[1] == 10 + len(starts) + ends - 1


@given(LENGTHS)
def test_no_document_predicts_the_first_token_of_the_next(lengths: list[int]) -> None:
    n = sum(lengths)
    documents = np.repeat(np.arange(len(lengths)), lengths)[None]
    prepared = NextToken().prepare({"text": rows([n], n), "document": documents}, NO_RANDOM)
    borders = np.cumsum(lengths)[:-1] - 1
    assert (prepared["targets"][0, borders] == IGNORED).all()
    assert (prepared["targets"] != IGNORED).sum() == n - len(lengths)


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=8)
@given(lengths=LENGTHS.filter(lambda lengths: sum(lengths) > len(lengths)), seed=st.integers(0, 99))
def test_packed_documents_learn_as_each_would_alone(name: str, lengths: list[int], seed: int) -> None:
    model, objective, n = still(name), NextToken(), sum(lengths)
    text = rows([n], n, seed)
    documents = np.repeat(np.arange(len(lengths)), lengths)[None]
    packed = loss_and_gradient(objective, model, objective.prepare({"text": text, "document": documents}, NO_RANDOM))
    ends = np.cumsum(lengths).tolist()
    alone = [
        loss_and_gradient(objective, model, objective.prepare({"text": text[:, end - length : end]}, NO_RANDOM))
        for end, length in zip(ends, lengths, strict=True)
        if length > 1
    ]
    assert near(packed[0], torch.stack([loss for loss, _ in alone]).sum(), 1e-10)
    assert near(packed[1], torch.stack([slope for _, slope in alone]).sum(0), 1e-10)
    ids, numbers = torch.from_numpy(text), torch.from_numpy(documents)
    assert near(next_token_loss(model, ids, numbers), packed[0] / (n - len(lengths)), 1e-10)


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=8)
@given(lengths=st.lists(st.integers(0, 8), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_garbage_under_padding_changes_no_bit(name: str, lengths: list[int], seed: int) -> None:
    model, objective = still(name, torch.float32), NextToken(start_id=1, end_id=2)
    clean = objective.prepare({"text": rows(lengths, 8), "text_length": np.array(lengths)}, NO_RANDOM)
    garbage = np.random.default_rng(seed).integers(0, VOCAB, clean["ids"].shape)
    read = np.arange(9) < np.where(np.array(lengths) > 0, np.array(lengths) + 1, 0)[:, None]
    dirty = {**clean, "ids": np.where(read, clean["ids"], garbage)}
    for ours, theirs in zip(
        loss_and_gradient(objective, model, dirty), loss_and_gradient(objective, model, clean), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_rows_without_a_token_change_nothing_and_give_no_nan() -> None:
    model, objective = still("gpt2"), NextToken(start_id=1, end_id=2)
    with_empty = objective.prepare({"text": rows([4, 0, 6], 8), "text_length": np.array([4, 0, 6])}, NO_RANDOM)
    without = {name: values[[0, 2]] for name, values in with_empty.items()}
    for ours, theirs in zip(
        loss_and_gradient(objective, model, with_empty), loss_and_gradient(objective, model, without), strict=True
    ):
        assert near(ours, theirs, 1e-12)
    nothing = objective.prepare({"text": rows([0, 0], 8), "text_length": np.array([0, 0])}, NO_RANDOM)
    loss = mean_loss(objective, model, nothing)
    assert loss == 0
    assert not gradient(model, loss).any()
