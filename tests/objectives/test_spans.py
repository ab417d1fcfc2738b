"""Span corruption: nothing is lost, sentinels stand in order, and the arrays are as wide as was said."""

import numpy as np
import pytest
from helpers.toy_recipes import loss_and_gradient, near, still
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import ConfigError
from cutaway.objectives import IGNORED
from cutaway.objectives.spans import SpanCorruption

SENTINELS = list(range(49, 39, -1))  # T5's stand at the end of the vocabulary, the first one last


def corruption(**more: float) -> SpanCorruption:
    return SpanCorruption(start_id=0, end_id=1, sentinels=SENTINELS, **more)  # type: ignore[arg-type]


def put_back(source: list[int], target: list[int]) -> list[int]:
    """The text: each sentinel of the source gives way to what stands behind it in the target."""
    spans: dict[int, list[int]] = {}
    for id in target:
        if id in SENTINELS:
            spans[id] = []
        else:
            spans[next(reversed(spans))].append(id)
    return [inner for id in source for inner in (spans[id] if id in SENTINELS else [id])]


SHARES = st.sampled_from([0.15, 0.5, 0.02, 0.9])


@given(n=st.integers(2, 120), share=SHARES, mean_span=st.sampled_from([1.0, 3.0, 10.0]), seed=st.integers(0, 9999))
def test_source_and_target_together_are_the_text(n: int, share: float, mean_span: float, seed: int) -> None:
    text = np.random.default_rng(seed).integers(2, 40, n)
    source, target = corruption(share=share, mean_span=mean_span).cut(text, np.random.default_rng(seed))
    assert put_back(source.tolist(), target.tolist()) == text.tolist()
    for side in (source, target):
        used = [id for id in side.tolist() if id in SENTINELS]
        assert used == SENTINELS[: len(used)]
    n_spans = int(np.isin(source, SENTINELS).sum())
    assert len(target) - n_spans == min(max(round(share * n), 1), n - 1)
    assert source[0] not in SENTINELS  # a text begins with what is kept
    assert target[0] == SENTINELS[0]
    gaps = np.diff(np.flatnonzero(np.isin(target, SENTINELS)))
    assert not len(gaps) or gaps.min() > 1  # no span is empty


def test_fifteen_percent_are_cut_in_spans_of_three() -> None:
    source, target = corruption().cut(np.arange(2, 40).repeat(4)[:100], np.random.default_rng(0))
    assert len(target) == 15 + 5
    assert len(source) == 85 + 5


def test_all_ways_to_cut_come_up() -> None:
    """Six tokens, two spans of two tokens in all: kept first, so that three places are left for the first."""
    objective = corruption(share=0.34, mean_span=1.0)
    cuts = [tuple(objective.cut(np.arange(2, 8), np.random.default_rng(seed))[1].tolist()) for seed in range(600)]
    counts = [cuts.count(cut) for cut in set(cuts)]
    assert len(counts) == 3
    assert min(counts) > 200 - 5 * (200 * 2 / 3) ** 0.5


@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=5), more=st.integers(0, 9), share=SHARES)
def test_no_row_is_wider_than_was_said(lengths: list[int], more: int, share: float) -> None:
    width, objective = max(2, max(lengths)) + more, corruption(share=share)
    text = np.random.default_rng(0).integers(2, 40, (len(lengths), width))
    prepared = objective.prepare({"text": text, "text_length": np.array(lengths)}, np.random.default_rng(0))
    source_width, target_width = objective.widths(width)
    assert prepared["source"].shape == (len(lengths), source_width)
    assert prepared["ids"].shape == prepared["targets"].shape == (len(lengths), target_width)
    for row, n in enumerate(lengths):
        source = prepared["source"][row][prepared["source_real"][row]].tolist()
        target = prepared["targets"][row][prepared["targets"][row] != IGNORED].tolist()
        if n > 1:
            assert (source[-1], target[-1]) == (1, 1)
            assert put_back(source[:-1], target[:-1]) == text[row, :n].tolist()
        else:
            assert target == []


def test_a_text_of_one_token_changes_nothing() -> None:
    model, objective = still("t5"), corruption()
    text = np.random.default_rng(0).integers(2, 40, (3, 12))
    prepared = objective.prepare({"text": text, "text_length": np.array([12, 1, 0])}, np.random.default_rng(0))
    alone = {name: values[:1] for name, values in prepared.items()}
    for ours, theirs in zip(
        loss_and_gradient(objective, model, prepared), loss_and_gradient(objective, model, alone), strict=True
    ):
        assert near(ours, theirs, 1e-10)


def test_a_vocabulary_without_sentinels_is_refused() -> None:
    with pytest.raises(ConfigError, match="<extra_id_0>"):
        SpanCorruption(start_id=0, end_id=1, sentinels=[])
