"""The future never changes the past; padding, batches, packing and the cache change nothing at all."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from helpers.tiny_models import DECODERS, READERS, TRANSLATORS, VOCAB, close, some_ids, tiny
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cutaway.model.beam_cache import Tree
from cutaway.model.model import DecoderModel, EncoderDecoderModel

PRECISIONS = [torch.float32, torch.float64]


def padded(ids: Tensor, lengths: list[int], *, left: bool, filler: int = 0) -> tuple[Tensor, Tensor]:
    """Each row cut to its length and padded on one side; and which tokens are real."""
    width = ids.shape[1]
    out, real = torch.full_like(ids, filler), torch.zeros_like(ids, dtype=torch.bool)
    for row, n in enumerate(lengths):
        place = slice(width - n, width) if left else slice(0, n)
        out[row, place], real[row, place] = ids[row, :n], True
    return out, real


@pytest.mark.parametrize("name", DECODERS)
@given(cut=st.integers(1, 7), seed=st.integers(0, 99))
def test_the_future_never_changes_the_past(name: str, cut: int, seed: int) -> None:
    model, ids = tiny(name, dtype=torch.float32), some_ids(2, 8)
    other = ids.clone()
    other[:, cut:] = some_ids(2, 8 - cut, seed=seed + 1000)
    assert torch.equal(model(ids)[:, :cut], model(other)[:, :cut])


@pytest.mark.parametrize("name", TRANSLATORS)
@given(cut=st.integers(1, 5), seed=st.integers(0, 99))
def test_the_future_never_changes_the_past_of_a_translation(name: str, cut: int, seed: int) -> None:
    model, source, target = tiny(name, dtype=torch.float32), some_ids(2, 7, seed=1), some_ids(2, 6, seed=2)
    other = target.clone()
    other[:, cut:] = some_ids(2, 6 - cut, seed=seed + 1000)
    assert torch.equal(model(source, target)[:, :cut], model(source, other)[:, :cut])


def test_an_encoder_does_see_the_future() -> None:
    model, ids = tiny("bert"), some_ids(1, 8)
    other = ids.clone()
    other[:, -1] = (other[:, -1] + 1) % VOCAB
    assert not torch.equal(model(ids)[:, 0], model(other)[:, 0])


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", READERS)
@given(lengths=st.lists(st.integers(1, 8), min_size=3, max_size=3), seed=st.integers(0, 99))
def test_fault_12_garbage_in_padded_places_changes_no_bit(name: str, left: bool, lengths: list[int], seed: int) -> None:
    model, ids = tiny(name, dtype=torch.float32), some_ids(3, 8)
    clean, real = padded(ids, lengths, left=left)
    garbage = torch.where(real, clean, some_ids(3, 8, seed=seed + 1000))
    assert torch.equal(model(clean, real=real)[real], model(garbage, real=real)[real])


@pytest.mark.parametrize("name", TRANSLATORS)
@given(lengths=st.lists(st.integers(1, 7), min_size=3, max_size=3), seed=st.integers(0, 99))
def test_fault_12_garbage_in_a_padded_source_changes_no_bit(name: str, lengths: list[int], seed: int) -> None:
    model, source, target = tiny(name, dtype=torch.float32), some_ids(3, 7, seed=1), some_ids(3, 6, seed=2)
    clean, real = padded(source, lengths, left=False)
    garbage = torch.where(real, clean, some_ids(3, 7, seed=seed + 1000))
    assert torch.equal(model(clean, target, source_real=real), model(garbage, target, source_real=real))


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", READERS)
@given(lengths=st.lists(st.integers(1, 8), min_size=3, max_size=3))
def test_a_row_in_a_padded_batch_equals_the_row_alone(
    name: str, left: bool, dtype: torch.dtype, lengths: list[int]
) -> None:
    model, ids = tiny(name, dtype=dtype), some_ids(3, 8)
    batch, real = padded(ids, lengths, left=left)
    together = model(batch, real=real)
    for row, n in enumerate(lengths):
        assert close(together[row][real[row]], model(ids[row : row + 1, :n])[0])


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", TRANSLATORS)
@given(lengths=st.lists(st.integers(1, 7), min_size=3, max_size=3))
def test_a_translation_in_a_padded_batch_equals_it_alone(
    name: str, left: bool, dtype: torch.dtype, lengths: list[int]
) -> None:
    model, source, target = tiny(name, dtype=dtype), some_ids(3, 7, seed=1), some_ids(3, 6, seed=2)
    padded_source, source_real = padded(source, lengths, left=left)
    padded_target, real = padded(target, [min(n, 6) for n in lengths], left=left)
    together = model(padded_source, padded_target, source_real=source_real, real=real)
    for row, n in enumerate(lengths):
        alone = model(source[row : row + 1, :n], target[row : row + 1, : min(n, 6)])[0]
        assert close(together[row][real[row]], alone)


@pytest.mark.parametrize("name", READERS)
def test_fault_13_a_row_of_only_padding_gives_no_nan(name: str) -> None:
    model, ids = tiny(name), some_ids(3, 5)
    real = torch.ones(3, 5, dtype=torch.bool)
    real[1] = False
    out = model(ids, real=real)
    out[real].square().sum().backward()
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@pytest.mark.parametrize("name", TRANSLATORS)
def test_fault_13_a_source_of_only_padding_gives_no_nan(name: str) -> None:
    model, ids = tiny(name), some_ids(2, 5)
    out = model(ids, ids, source_real=torch.tensor([[True] * 5, [False] * 5]))
    out.square().sum().backward()
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", DECODERS)
@given(cuts=st.sets(st.integers(1, 8)), extra=st.integers(0, 4))
def test_cached_equals_uncached(name: str, dtype: torch.dtype, cuts: set[int], extra: int) -> None:
    model, ids = tiny(name, dtype=dtype), some_ids(2, 9)
    assert isinstance(model, DecoderModel)
    cache, ends = model.new_cache(2, 9 + extra), [0, *sorted(cuts), 9]
    pieces = [model(ids[:, start:stop], cache=cache) for start, stop in pairwise(ends)]
    assert close(torch.cat(pieces, dim=1), model(ids))
    assert cache.lengths.tolist() == [9, 9]


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", DECODERS)
@given(lengths=st.lists(st.integers(1, 5), min_size=3, max_size=3))
def test_rows_of_different_lengths_read_on_side_by_side(name: str, left: bool, lengths: list[int]) -> None:
    model, ids, more = tiny(name), some_ids(3, 5), some_ids(3, 3, seed=9)
    assert isinstance(model, DecoderModel)
    cache = model.new_cache(3, 12)
    prompt, real = padded(ids, lengths, left=left)
    model(prompt, real=real, cache=cache)
    steps = torch.cat([model(more[:, i : i + 1], cache=cache.first(9)) for i in range(3)], dim=1)
    for row, n in enumerate(lengths):
        alone = model(torch.cat([ids[row, :n], more[row]])[None])[0, n:]
        assert close(steps[row], alone)


@pytest.mark.parametrize("name", TRANSLATORS)
@given(cut=st.integers(1, 5), lengths=st.lists(st.integers(1, 7), min_size=2, max_size=2))
def test_cached_equals_uncached_in_a_translation(name: str, cut: int, lengths: list[int]) -> None:
    model, target = tiny(name), some_ids(2, 6, seed=2)
    assert isinstance(model, EncoderDecoderModel)
    source, real = padded(some_ids(2, 7, seed=1), lengths, left=False)
    cache = model.new_memory_cache(model.encode(source, real), real, 8)
    hidden = torch.cat([model.decode(part, cache=cache) for part in (target[:, :cut], target[:, cut:])], dim=1)
    assert close(model.head(hidden), model(source, target, source_real=real))


Generations = st.lists(st.lists(st.integers(0, 2), min_size=6, max_size=6), min_size=1, max_size=4)
Tidied = st.lists(st.sets(st.integers(0, 1)), min_size=4, max_size=4)  # the rows that forget, in each generation


def descend(
    read: Any, tree: Tree, generations: list[list[int]], tidied: list[set[int]]
) -> Iterator[tuple[int, list[int], Tensor]]:
    """Lets two rows of three hypotheses read on, and choose parents, again and again: row, its text, its last state."""
    texts: list[list[int]] = [[] for _ in range(6)]
    for depth, parents in enumerate(generations):
        new = some_ids(2, 3, seed=depth)
        states = read(new, tree)
        for i, token in enumerate(new.flatten().tolist()):
            texts[i].append(token)
            yield i // 3, texts[i], states[i // 3, i % 3]
        tree.reorder(torch.tensor(parents).view(2, 3))
        texts = [list(texts[i // 3 * 3 + parent]) for i, parent in enumerate(parents)]
        if tidied[depth]:
            used = tree.ancestors.any(dim=1).sum(dim=1)
            rows = torch.tensor(sorted(tidied[depth]))
            assert tree.collect(rows) == used[rows].tolist() == tree.lengths[rows].tolist()


@pytest.mark.parametrize("name", DECODERS)
@given(lengths=st.lists(st.integers(1, 5), min_size=2, max_size=2), generations=Generations, tidied=Tidied)
def test_a_hypothesis_sees_its_ancestors_alone(
    name: str, lengths: list[int], generations: list[list[int]], tidied: list[set[int]]
) -> None:
    model, ids = tiny(name), some_ids(2, 5)
    assert isinstance(model, DecoderModel)
    cache = model.new_cache(2, 9, slots=5 + 3 * 4)
    prompt, real = padded(ids, lengths, left=True)  # on the left, so that no slot has the number of its position
    model(prompt, real=real, cache=cache)
    tree = Tree.of(cache, 3)
    for row, text, state in descend(lambda new, tree: model(new, cache=tree), tree, generations, tidied):
        alone = torch.cat([ids[row, : lengths[row]], torch.tensor(text)])[None]
        assert close(state, model(alone)[0, -1])


@pytest.mark.parametrize("name", TRANSLATORS)
@given(lengths=st.lists(st.integers(1, 7), min_size=2, max_size=2), generations=Generations, tidied=Tidied)
def test_hypotheses_of_a_translation_share_their_sentence(
    name: str, lengths: list[int], generations: list[list[int]], tidied: list[set[int]]
) -> None:
    model = tiny(name)
    assert isinstance(model, EncoderDecoderModel)
    source, real = padded(some_ids(2, 7, seed=1), lengths, left=True)
    cache = model.with_memory(model.new_cache(2, 5, slots=3 * 4), 9)
    model.remember(cache, model.encode(source, real), real)
    tree = Tree.of(cache, 3)
    for row, text, state in descend(lambda new, tree: model.decode(new, cache=tree), tree, generations, tidied):
        its = slice(row, row + 1)
        alone = model(source[its], torch.tensor([text]), source_real=real[its])[0, -1]
        assert close(model.head(state[None, None])[0, 0], alone)


@pytest.mark.parametrize("name", DECODERS)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=2, max_size=2),
    kept=st.lists(st.integers(0, 7), min_size=2, max_size=2),
)
def test_a_cropped_cache_has_forgotten_the_rest(name: str, lengths: list[int], kept: list[int]) -> None:
    model, ids, more = tiny(name), some_ids(2, 6), some_ids(2, 3, seed=5)
    assert isinstance(model, DecoderModel)
    cache = model.new_cache(2, 10)
    prompt, real = padded(ids, lengths, left=True)
    model(prompt, real=real, cache=cache)
    cache.crop(torch.tensor(kept))
    steps = torch.cat([model(part, cache=cache) for part in (more[:, :1], more[:, 1:])], dim=1)
    for row, (n, slots) in enumerate(zip(lengths, kept, strict=True)):
        n_left = max(min(slots, 6) - (6 - n), 0)  # of the slots that are kept, the first 6 - n hold padding
        alone = model(torch.cat([ids[row, :n_left], more[row]])[None])[0, n_left:]
        assert close(steps[row], alone)
    cache.clear()
    assert close(model(ids, cache=cache), model(ids))


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", READERS)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), padding=st.integers(0, 2))
def test_packed_documents_equal_documents_alone(
    name: str, dtype: torch.dtype, lengths: list[int], padding: int
) -> None:
    model = tiny(name, dtype=dtype)
    texts = [some_ids(1, n, seed=i) for i, n in enumerate(lengths)]
    row = torch.cat([*texts, torch.zeros(1, padding, dtype=torch.long)], dim=1)
    documents = torch.cat([torch.full((n,), i) for i, n in enumerate([*lengths, padding])])[None]
    packed = model(row, documents=documents, real=documents < len(lengths))
    for i, text in enumerate(texts):
        assert close(packed[documents == i], model(text)[0])
