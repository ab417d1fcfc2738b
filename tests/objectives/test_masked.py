"""Hidden words: how many, which, behind what; whole words; and the arrays of BERT's two questions."""

import numpy as np
import pytest
import torch
from helpers.tiny_models import ENCODERS, tiny
from helpers.toy_recipes import gradient, loss_and_gradient, near, still
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.objectives import IGNORED, as_tensors, mean_loss
from cutaway.objectives.masked import Hiding, Masked, Pretraining, join_parts, pack_documents

VOCAB, SPECIAL, MASK = 50, (0, 1, 2, 3, 4), 4
CONTINUES = tuple(id >= 25 for id in range(VOCAB))  # tokens 25 … 49 are later pieces of a word
SINGLE = Hiding(mask_id=MASK, vocab_size=VOCAB, special_ids=SPECIAL)
WHOLE = Hiding(mask_id=MASK, vocab_size=VOCAB, special_ids=SPECIAL, continues=CONTINUES)


def rows(lengths: list[int], width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random tokens, special ones among them, and which of them are no padding."""
    ids = np.random.default_rng(seed).integers(0, VOCAB, (len(lengths), width))
    return ids, np.arange(width) < np.array(lengths)[:, None]


def words(ids: np.ndarray, real: np.ndarray) -> list[list[int]]:
    """The places of each word of a row; special tokens and padding belong to none."""
    found: list[list[int]] = []
    before = False
    for place, (id, is_real) in enumerate(zip(ids.tolist(), real.tolist(), strict=True)):
        ordinary = is_real and id not in SPECIAL
        if ordinary and before and CONTINUES[id]:
            found[-1].append(place)
        elif ordinary:
            found.append([place])
        before = ordinary
    return found


CASES = {
    "lengths": st.lists(st.integers(0, 40), min_size=1, max_size=4),
    "seed": st.integers(0, 9999),
    "share": st.sampled_from([0.15, 0.4, 0.01]),
}


@given(**CASES)
def test_the_share_of_every_row_is_hidden_and_nothing_else_is_touched(
    lengths: list[int], seed: int, share: float
) -> None:
    ids, real = rows(lengths, 40, seed)
    before = ids.copy()
    hiding = Hiding(mask_id=MASK, vocab_size=VOCAB, special_ids=SPECIAL, share=share)
    hidden, chosen = hiding(ids, real, np.random.default_rng(seed))
    ordinary = real & (ids > 4)
    assert not (chosen & ~ordinary).any()
    assert (hidden == ids)[~chosen].all()
    assert np.isin(hidden[chosen], [MASK, *range(5, VOCAB)]).all()
    for n, n_chosen in zip(ordinary.sum(axis=1).tolist(), chosen.sum(axis=1).tolist(), strict=True):
        assert n_chosen == (max(1, round(share * n)) if n else 0)
        assert n_chosen <= hiding.most(40)
    assert (ids == before).all()


@given(**CASES)
def test_the_pieces_of_a_word_are_hidden_all_or_none(lengths: list[int], seed: int, share: float) -> None:
    """Except where every word is longer than the share: then the first pieces of one are."""
    ids, real = rows(lengths, 40, seed)
    hiding = Hiding(mask_id=MASK, vocab_size=VOCAB, special_ids=SPECIAL, continues=CONTINUES, share=share)
    _, chosen = hiding(ids, real, np.random.default_rng(seed))
    for row in range(len(ids)):
        found = words(ids[row], real[row])
        if not found:
            assert not chosen[row].any()
            continue
        wanted = max(1, round(share * sum(map(len, found))))
        taken = [chosen[row, places].sum() for places in found]
        if min(map(len, found)) > wanted:
            assert sorted(taken)[-1] == wanted == sum(taken)
            continue
        left = wanted - sum(taken)
        assert 0 <= left < wanted
        for places, n in zip(found, taken, strict=True):
            assert n in (0, len(places))
            assert n or len(places) > left  # as many words as fit


def one_by_one(hiding: Hiding, ids: np.ndarray, real: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """What `WHOLE` does for all rows at once, word by word; word 1 is the first of a row."""
    random = np.random.default_rng(seed)
    chance, fate = random.random((len(ids), ids.shape[1] + 1)), random.random(ids.shape)
    another = random.choice([id for id in range(VOCAB) if id not in SPECIAL], ids.shape)
    chosen = np.zeros_like(real)
    for row, numbers in enumerate(chance):
        found = words(ids[row], real[row])
        left = wanted = max(1, round(hiding.share * sum(map(len, found))))
        in_order = sorted(found, key=lambda places: numbers[1 + found.index(places)])
        for places in in_order:
            if len(places) <= left:
                chosen[row, places] = True
                left -= len(places)
        if left == wanted and found:
            chosen[row, in_order[0][:wanted]] = True
    swapped = chosen & (fate >= hiding.masked) & (fate < hiding.masked + hiding.random)
    return np.where(swapped, another, np.where(chosen & (fate < hiding.masked), MASK, ids)), chosen


@given(**CASES)
def test_all_rows_at_once_are_what_each_would_be_by_itself(lengths: list[int], seed: int, share: float) -> None:
    """A seed hides the words that it always hid."""
    ids, real = rows(lengths, 40, seed)
    hiding = Hiding(mask_id=MASK, vocab_size=VOCAB, special_ids=SPECIAL, continues=CONTINUES, share=share)
    hidden, chosen = hiding(ids, real, np.random.default_rng(seed))
    expected, expected_chosen = one_by_one(hiding, ids, real, seed)
    assert (chosen == expected_chosen).all()
    assert (hidden == expected).all()


def test_eighty_percent_are_masked_ten_swapped_ten_left() -> None:
    """200,000 tokens, 30,000 of them hidden: within five standard deviations."""
    generator = np.random.default_rng(0)
    hiding = Hiding(mask_id=MASK, vocab_size=1000, special_ids=SPECIAL)
    ids = generator.integers(5, 1000, (500, 400))
    hidden, chosen = hiding(ids, np.ones_like(ids, dtype=bool), generator)
    n = int(chosen.sum())
    assert n == 500 * 60
    by_chance = 0.1 / 995  # a random token that is the right one
    for share, expected in {
        (hidden[chosen] == MASK).mean(): 0.8,
        (hidden[chosen] == ids[chosen]).mean(): 0.1 + by_chance,
    }.items():
        assert abs(share - expected) < 5 * (expected * (1 - expected) / n) ** 0.5
    swapped = hidden[chosen & (hidden != MASK) & (hidden != ids)]
    counts = np.bincount(swapped, minlength=1000)
    assert counts[:5].sum() == 0
    assert abs(counts[5:] - len(swapped) / 995).max() < 6 * (len(swapped) / 995) ** 0.5
    per_place = chosen.sum(axis=0)
    assert abs(per_place - 75).max() < 5 * (75 * 0.85) ** 0.5


def test_long_words_are_drawn_almost_as_often_as_short_ones() -> None:
    """Words of one, two and three pieces in turn. The last words of a row's share have to fit, which favours short
    ones: here, with 90 pieces to hide, by 9 %."""
    ids = np.tile([10, 11, 30, 12, 31, 32], (1000, 100))
    _, chosen = WHOLE(ids, np.ones_like(ids, dtype=bool), np.random.default_rng(0))
    one, two, also_two, *three = chosen.reshape(-1, 6).mean(axis=0).tolist()
    assert (chosen.sum(axis=1) == 90).all()
    assert two == also_two
    assert len(set(three)) == 1
    assert three[0] < two < one < 1.1 * three[0]


@pytest.mark.parametrize("hiding", [SINGLE, WHOLE])
@given(lengths=st.lists(st.integers(0, 30), min_size=1, max_size=4), seed=st.integers(0, 9999))
def test_the_places_asked_for_are_the_hidden_ones(hiding: Hiding, lengths: list[int], seed: int) -> None:
    text, _ = rows(lengths, 30, seed)
    objective = Masked(hiding, cls_id=1, sep_id=2)
    prepared = objective.prepare({"text": text, "text_length": np.array(lengths)}, np.random.default_rng(seed))
    ids, _, real = join_parts([(text, np.array(lengths))], 1, 2)
    hidden, chosen = hiding(ids, real, np.random.default_rng(seed))
    assert (prepared["ids"] == hidden).all()
    assert (prepared["real"] == real).all()
    for row in range(len(text)):
        at, targets = prepared["at"][row], prepared["targets"][row]
        assert len(set(at.tolist())) == len(at)
        asked = at[targets != IGNORED]
        assert sorted(asked.tolist()) == np.flatnonzero(chosen[row]).tolist()
        assert (targets[targets != IGNORED] == ids[row, asked]).all()
    assert objective.counts(prepared) == {"masked": int(chosen.sum())}


def pair(first: list[int], second: list[int], width: int) -> dict[str, np.ndarray]:
    def row(tokens: list[int]) -> np.ndarray:
        return np.array([tokens + [0] * (width - len(tokens))])

    lengths = {"first_length": np.array([len(first)]), "second_length": np.array([len(second)])}
    return {"first": row(first), "second": row(second), "follows": np.array([True]), **lengths}


def test_two_parts_stand_between_cls_and_sep() -> None:
    nothing_hidden = Hiding(mask_id=MASK, vocab_size=VOCAB, special_ids=tuple(range(VOCAB - 1)))
    objective = Pretraining(nothing_hidden, cls_id=1, sep_id=2)
    prepared = objective.prepare(pair([10, 11, 12], [13, 14], 7), np.random.default_rng(0))
    assert prepared["ids"].tolist() == [[1, 10, 11, 12, 2, 13, 14, 2, 0, 0]]
    assert prepared["segments"].tolist() == [[0, 0, 0, 0, 0, 1, 1, 1, 0, 0]]
    assert prepared["real"].tolist() == [[True] * 8 + [False] * 2]
    assert prepared["follows"].tolist() == [0]  # BERT's classes: 0 says that it follows
    assert objective.extra == 3
    elsewhere = {**pair([10, 11, 12], [13, 14, 15, 16], 7), "follows": np.array([False])}
    prepared = objective.prepare(elsewhere, np.random.default_rng(0))
    assert prepared["ids"].tolist() == [[1, 10, 11, 12, 2, 13, 14, 15, 16, 2]]  # full to the last place
    assert prepared["follows"].tolist() == [1]
    alone = objective.prepare(pair([10, 11, 12], [], 7), np.random.default_rng(0))
    assert objective.counts(alone) == {"masked": 0, "next_sentence": 0}


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=3),
    st.sampled_from([[], [98], [0]]),
    st.sampled_from([[], [99], [0]]),
)
def test_joined_parts_lose_no_token(lengths: list[tuple[int, int]], cls: list[int], sep: list[int]) -> None:
    first, second = (np.arange(100 * part, 100 * part + 6 * len(lengths)).reshape(-1, 6) for part in (1, 2))
    parts = [(first, np.array([a for a, _ in lengths])), (second, np.array([b for _, b in lengths]))]
    around = [*cls, None][0], [*sep, None][0]
    ids, segments, real = join_parts(parts, *around)
    n = int(real.sum(axis=1).max())
    for whole, cut in zip((ids, segments, real), join_parts(parts, *around, width=n), strict=True):
        assert (whole[:, :n] == cut).all()
        assert not whole[:, n:].any()
    for row, (a, b) in enumerate(lengths):
        first_part = cls + first[row, :a].tolist() + sep
        second_part = second[row, :b].tolist() + sep
        assert ids[row][real[row]].tolist() == first_part + second_part
        assert segments[row][real[row]].tolist() == [0] * len(first_part) + [1] * len(second_part)


def borders(rows: int, width: int, seed: int) -> np.ndarray:
    """Rows of documents with numbers that rise, each of a few tokens."""
    return 3 + np.cumsum(np.random.default_rng(seed).random((rows, width)) < 0.2, axis=1)


@given(st.integers(1, 4), st.integers(2, 20), st.integers(0, 999), st.booleans(), st.booleans())
def test_each_document_of_a_row_stands_between_cls_and_sep(n: int, width: int, seed: int, cls: bool, sep: bool) -> None:
    text, document = rows([width] * n, width, seed)[0], borders(n, width, seed)
    ids, numbers = pack_documents(text, document, 98 if cls else None, 99 if sep else None)
    assert ids.shape == numbers.shape == (n, width + cls + sep)
    for row in range(n):
        whole = [text[row, document[row] == i].tolist() for i in np.unique(document[row])]
        flat = [[98] * cls + tokens + [99] * sep for tokens in whole]
        expected = [(id, i) for i, tokens in enumerate(flat, 1) for id in tokens][: width + cls + sep]
        assert numbers[row].tolist() == [i for _, i in expected]
        assert ids[row].tolist() == [id for id, _ in expected[: len(expected) - sep]] + [99] * sep


@pytest.mark.parametrize("name", ENCODERS)
@settings(max_examples=8)
@given(n=st.integers(1, 3), width=st.integers(2, 20), seed=st.integers(0, 99))
def test_packed_documents_learn_as_each_would_alone(name: str, n: int, width: int, seed: int) -> None:
    model, objective = still(name), Masked(WHOLE, cls_id=1, sep_id=2)
    text = rows([width] * n, width, seed)[0]
    batch = objective.prepare({"text": text, "document": borders(n, width, seed)}, np.random.default_rng(seed))
    loss, slope = loss_and_gradient(objective, model, batch)
    alone = [(torch.zeros_like(loss), torch.zeros_like(slope))]
    for row in range(n):
        for i in np.unique(batch["documents"][row]):
            places = np.flatnonzero(batch["documents"][row] == i)
            asked = (batch["targets"][row] != IGNORED) & np.isin(batch["at"][row], places)
            one = {"ids": batch["ids"][row, places], "real": batch["real"][row, places]}
            one |= {"at": batch["at"][row, asked] - places[0], "targets": batch["targets"][row, asked]}
            if asked.any():
                alone.append(loss_and_gradient(objective, model, {name: part[None] for name, part in one.items()}))
    assert near(loss, torch.stack([loss for loss, _ in alone]).sum(), 1e-10)
    assert near(slope, torch.stack([slope for _, slope in alone]).sum(0), 1e-10)


@pytest.mark.parametrize("task", ["masked_language_model", "pretrain"])
def test_the_loss_is_taken_at_the_hidden_places_alone(task: str) -> None:
    model = tiny("bert", task=task)
    prepared = Masked(SINGLE, cls_id=1, sep_id=2).prepare(
        {"text": rows([9, 14], 14, 0)[0], "text_length": np.array([9, 14])}, np.random.default_rng(0)
    )
    batch = as_tensors(prepared)
    log_p = model(batch["ids"], real=batch["real"]).log_softmax(-1)
    by_hand = -sum(
        log_p[row, at, target]
        for row in range(2)
        for at, target in zip(prepared["at"][row], prepared["targets"][row], strict=True)
        if target != IGNORED
    )
    loss, _ = loss_and_gradient(Masked(SINGLE), model, prepared)
    torch.testing.assert_close(loss, by_hand.detach(), rtol=1e-10, atol=0)


def test_both_questions_are_means_over_their_own_targets() -> None:
    model, objective = tiny("bert", task="pretrain"), Pretraining(SINGLE, cls_id=1, sep_id=2)
    raw = [pair([10, 11, 12, 13], [14, 15], 12), pair([20, 21], [22, 23, 24, 25, 26, 27, 28, 29, 30], 12)]
    batch = {name: np.concatenate([one[name] for one in raw]) for name in raw[0]}
    prepared = objective.prepare(batch, np.random.default_rng(0))
    tensors = as_tensors(prepared)
    counts = objective.counts(prepared)
    assert counts == {"masked": 1 + 2, "next_sentence": 2}
    hidden = model.hidden(tensors["ids"], real=tensors["real"], segments=tensors["segments"])
    scores = model.head.next_sentence(hidden, tensors["real"])  # type: ignore[operator, union-attr]
    sums = objective.losses(model, tensors)
    follows = torch.nn.functional.cross_entropy(scores, tensors["follows"])
    torch.testing.assert_close(sums["next_sentence"] / 2, follows, rtol=1e-10, atol=0)
    torch.testing.assert_close(mean_loss(objective, model, prepared), sums["masked"] / 3 + follows, rtol=1e-10, atol=0)


@settings(max_examples=8)
@given(lengths=st.lists(st.integers(0, 12), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_padding_and_rows_without_a_token_change_nothing(lengths: list[int], seed: int) -> None:
    model, objective = still("bert"), Masked(SINGLE, cls_id=1, sep_id=2)
    text, _ = rows(lengths, 12, seed)
    clean = objective.prepare({"text": text, "text_length": np.array(lengths)}, np.random.default_rng(seed))
    garbage = np.random.default_rng(seed).integers(0, VOCAB, clean["ids"].shape)
    dirty = {**clean, "ids": np.where(clean["real"], clean["ids"], garbage)}
    loss, slope = loss_and_gradient(objective, model, clean)
    for ours, theirs in zip(loss_and_gradient(objective, model, dirty), (loss, slope), strict=True):
        assert torch.equal(ours, theirs)
    there = np.array(lengths) > 0
    if there.any():
        fewer = {name: values[there] for name, values in clean.items()}
        for ours, theirs in zip(loss_and_gradient(objective, model, fewer), (loss, slope), strict=True):
            assert near(ours, theirs, 1e-10)
    else:
        assert loss == 0
        assert not slope.any()


def test_a_row_of_special_tokens_alone_asks_for_nothing() -> None:
    model, objective = still("bert"), Masked(SINGLE)
    prepared = objective.prepare({"text": np.full((2, 5), 3)}, np.random.default_rng(0))
    loss = mean_loss(objective, model, prepared)
    assert loss == 0
    assert not gradient(model, loss).any()
