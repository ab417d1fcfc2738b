"""The largest scores, found block by block, are those that PyTorch finds."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway.decoding.search.topk import top, topk


@given(seed=st.integers(0, 999), vocab=st.integers(1, 5000), k=st.integers(1, 12))
def test_the_largest_are_found_block_by_block(seed: int, vocab: int, k: int) -> None:
    x = torch.randn(2, 3, vocab, generator=torch.Generator().manual_seed(seed))
    wanted, found = x.topk(min(k, vocab)), top(x, min(k, vocab))
    assert torch.equal(found[0], wanted.values)
    assert torch.equal(found[1], wanted.indices)


@pytest.mark.parametrize(("vocab", "k"), [(256, 1), (300, 1), (773, 3)])
def test_the_likeliest_is_found_wherever_it_stands(vocab: int, k: int) -> None:
    x = torch.eye(vocab)
    assert top(x, k)[1][:, 0].tolist() == topk(x).tolist() == list(range(vocab))


@given(seed=st.integers(0, 999), vocab=st.integers(1, 5000), values=st.sampled_from([2, 50, 10**6]))
def test_the_likeliest_is_the_first_of_equals(seed: int, vocab: int, values: int) -> None:
    x = torch.randint(values, (3, vocab), generator=torch.Generator().manual_seed(seed)).float()
    x[1], x[2, -1] = float("-inf"), values + 1  # nothing to choose from; the last
    assert torch.equal(topk(x), x.argmax(dim=-1))
