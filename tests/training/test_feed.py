"""The feed: what a step sees depends on the seed and on the step, and on nothing else."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.toy_recipes import toy
from hypothesis import given
from hypothesis import strategies as st

from cutaway.data.batches import Batch, Windows
from cutaway.data.buckets import LADDER
from cutaway.data.corpus import Corpus
from cutaway.objectives import NextToken
from cutaway.training.datasets import prepare
from cutaway.training.feed import SCALE, Feed, StepBatch, split_batch

CHANGES = {"shift": 1, "mirror": True, "erase": 0.5, "cutmix": 0.3, "mixup": 0.3}


def feed_of(kind: str, folder: Path, **more: Any) -> Feed:
    objective = {"kind": kind, **CHANGES} if kind == "images" else {"kind": kind}
    recipe = toy(kind, folder, objective=objective, data={"seq_len": 60 if kind == "spans" else 24})
    dataset = prepare(recipe, None)
    return Feed(dataset.train, dataset.objective, **{"seed": 3, "accumulate": 2, **more})


def same(a: StepBatch, b: StepBatch) -> bool:
    parts = zip(a.parts, b.parts, strict=True)
    equal = all(one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one) for one, two in parts)
    return equal and (a.step, a.counts, a.tokens, a.examples) == (b.step, b.counts, b.tokens, b.examples)


@pytest.mark.parametrize("kind", ["next_token", "masked", "pretrain", "spans", "translate", "images"])
def test_any_number_of_workers_gives_the_same_batches(kind: str, tmp_path: Path) -> None:
    """Also the hidden words, the cut spans and the varied pictures, which are drawn at random."""
    reference = feed_of(kind, tmp_path)
    expected = [reference.on_device(reference.make(step)) for step in range(9)]
    for workers in (1, 3):
        with feed_of(kind, tmp_path, workers=workers).ahead(0, 9) as batches:
            assert all(same(a, b) for a, b in zip(batches, expected, strict=True))
    with reference.ahead(5, 9) as batches:  # from the middle, as after a resume
        assert all(same(a, b) for a, b in zip(batches, expected[5:], strict=True))


@pytest.mark.parametrize("kind", ["masked", "pretrain", "spans", "images"])
def test_another_step_or_seed_draws_other_numbers(kind: str, tmp_path: Path) -> None:
    """The same examples, an epoch later, are hidden, cut and varied in another way."""
    feed = feed_of(kind, tmp_path)
    same_text: Any = type("Same", (), {"steps": 1, "n_examples": 8, "__call__": lambda self, step: feed.source(0)})()

    def shown(seed: int, step: int) -> list[torch.Tensor]:
        other = Feed(same_text, feed.objective, seed=seed)
        part = other.on_device(other.make(step)).parts[0]
        return [part[name] for name in ("ids", "source", "image") if name in part]

    first = shown(3, 0)
    assert all(torch.equal(a, b) for a, b in zip(shown(3, 0), first, strict=True))
    for seed, step in ((3, 1), (4, 0)):
        assert not all(torch.equal(a, b) for a, b in zip(shown(seed, step), first, strict=True))


class Counted:
    """A source that counts how often it is asked."""

    def __init__(self, source: Windows) -> None:
        self.source, self.steps, self.n_examples, self.asked = source, source.steps, source.n_examples, []  # type: ignore[var-annotated]

    def __call__(self, step: int) -> Batch:
        self.asked.append(step)
        return self.source(step)


def test_the_millionth_batch_is_there_at_once(tmp_path: Path) -> None:
    """After a resume nothing before it has to be made again."""
    corpus = Corpus(np.arange(100_000) % 50, np.array([0, 100_000]), 100_000, "")
    source = Counted(Windows(corpus, rows=8, seq_len=64, seed=0))
    start = time.perf_counter()
    batch = Feed(source, NextToken(), seed=0).make(10**6)
    assert time.perf_counter() - start < 1
    assert source.asked == [10**6]
    assert batch.parts[0]["ids"].shape == (8, 64)
    for kind in ("translate", "images"):
        feed = feed_of(kind, tmp_path)
        start = time.perf_counter()
        feed.on_device(feed.make(10**6))
        assert time.perf_counter() - start < 1


@given(st.integers(1, 20), st.integers(1, 8))
def test_the_parts_are_the_batch(rows: int, n: int) -> None:
    arrays = {"ids": np.arange(rows * 3).reshape(rows, 3), "targets": np.arange(rows)}
    parts = split_batch(arrays, n)
    assert len(parts) == min(n, rows)
    for name, values in arrays.items():
        assert (np.concatenate([part[name] for part in parts]) == values).all()
    sizes = [len(part["ids"]) for part in parts]
    assert max(sizes) - min(sizes) <= 1


TABLE = {"format": "table", "train": ["table.tsv"], "split": "file"}


@pytest.mark.parametrize("kind", ["lines", "table", "masked", "classify", "pair", "tag", "translate"])
def test_padding_is_no_token(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch has as many tokens when all rows are padded to the widest."""
    data = {"table": TABLE, "masked": {"split": "line"}}.get(kind, {})
    sums = []
    for ladder in (LADDER, (64,)):
        monkeypatch.setattr("cutaway.data.buckets.LADDER", ladder)
        dataset = prepare(toy({"table": "lines"}.get(kind, kind), tmp_path, data=data), None)
        feed = Feed(dataset.train, dataset.objective, seed=0)
        batches = [feed.make(step) for step in range(dataset.train.steps)]
        sums.append(sum(batch.tokens for batch in batches))
    names = ("ids", "source") if kind == "translate" else ("ids",)
    assert sums[0] == sums[1] < sum(part[name].numel() for batch in batches for part in batch.parts for name in names)


def test_the_tokens_of_a_language_model_are_those_that_it_reads(tmp_path: Path) -> None:
    """Lines of n words are read as <sos> and n words; windows are full, also where documents meet."""
    dataset = prepare(toy("lines", tmp_path, data={"valid_share": 0.0}), None)
    feed = Feed(dataset.train, dataset.objective, seed=0)
    lines = (tmp_path / "text.txt").read_text().splitlines()
    told = sum(feed.make(step).tokens for step in range(dataset.train.steps))
    assert told == sum(min(len(line.split()) + 1, 23) for line in lines)
    corpus = Corpus(np.arange(1000) % 50, np.arange(0, 1001, 40), 1000, "")
    assert Feed(Windows(corpus, rows=8, seq_len=64, seed=0), NextToken(), seed=0).make(3).tokens == 8 * 64


def test_each_term_is_scaled_by_its_weight_and_its_targets(tmp_path: Path) -> None:
    recipe = toy("classify", tmp_path, objective={"auxiliary": 0.25, "mask_share": 0.9})
    dataset = prepare(recipe, None)
    batch = Feed(dataset.train, dataset.objective, seed=0, accumulate=2).make(0)
    assert batch.counts["auxiliary"] > batch.counts["label"] > 1
    expected = torch.tensor([1 / batch.counts["label"], 0.25 / batch.counts["auxiliary"]])
    assert all(torch.equal(part[SCALE], expected) for part in batch.parts)
    assert batch.counts["label"] == len([example for example in batch.examples if example >= 0])


def test_a_feed_that_is_left_early_leaves_no_thread_behind(tmp_path: Path) -> None:
    import threading

    before = threading.active_count()
    with feed_of("next_token", tmp_path, workers=2).ahead(0, 1000) as batches:
        next(batches)
    assert threading.active_count() == before
