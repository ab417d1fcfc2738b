"""Long calls say how far they are; whoever stops one, at whatever moment, finds the model as it was."""

from itertools import pairwise

import pytest
import torch
from helpers.long_calls import IDS, READS, model_for
from helpers.tiny_models import inputs
from hypothesis import given
from hypothesis import strategies as st

from cutaway.inside.progress import stages
from cutaway.model.model import Model
from cutaway.model.tap import watching


def plain(model: Model) -> torch.Tensor:
    with torch.no_grad():
        return model(*inputs("transformer")) if hasattr(model, "encode") else model(IDS)


@pytest.mark.parametrize("name", READS)
def test_a_call_says_how_far_it_is_and_ends_at_the_end(name: str) -> None:
    told: list[tuple[int, int]] = []
    READS[name](model_for(name), lambda done, total: told.append((done, total)))
    shares = [done / total for done, total in told]
    assert len(shares) >= 2
    assert shares == sorted(shares)
    assert shares[0] >= 0
    assert shares[-1] == 1


@pytest.mark.parametrize("name", READS)
def test_whoever_stops_it_finds_the_model_as_it_was(name: str) -> None:
    model = model_for(name)
    before, weights = plain(model), {key: value.clone() for key, value in model.state_dict().items()}
    n = 0

    def count(done: int, total: int) -> None:
        nonlocal n
        n += 1

    READS[name](model, count)
    for stop in sorted({0, n // 2, n - 1}):
        left = stop

        def progress(done: int, total: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt("enough")

        with pytest.raises(KeyboardInterrupt, match="enough"):
            READS[name](model, progress)
        assert not watching()
        for part in model.modules():
            assert not part._forward_hooks
            assert not part._forward_pre_hooks
        assert not model.training
        assert all(weight.grad is None and weight.requires_grad for weight in model.parameters())
        assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
        assert torch.equal(plain(model), before)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=5))
def test_calls_inside_a_call_share_its_way(sizes: list[tuple[int, int]]) -> None:
    """Each of them counts by itself; together they go from 0 to 1, and each as far as it is large."""
    told: list[float] = []
    whole = sum(size for size, _ in sizes)
    if not whole:
        return
    before = 0
    for (size, n), progress in zip(sizes, stages(lambda a, b: told.append(a / b), *(s for s, _ in sizes)), strict=True):
        for done in range(n + 1):
            progress(done, n)
        before += size
        assert told[-1] == pytest.approx(before / whole)
    assert all(a <= b + 1e-12 for a, b in pairwise(told))
    assert told[0] == 0
