"""A few rows go another way through a matrix, and find the same."""

import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_models import close
from hypothesis import example, given
from hypothesis import strategies as st

from cutaway.model.kernels import linear as room
from cutaway.model.kernels.linear import FEW_ROWS as FEW
from cutaway.model.kernels.linear import Linear, linear

SHAPES = [(n,) for n in range(1, FEW + 2)] + [(1, 1), (2, 3), (1, 0), ()]


@given(shape=st.sampled_from(SHAPES), has_bias=st.booleans(), seed=st.integers(0, 99))
@example(shape=(), has_bias=True, seed=0)  # drawn seldom
@torch.no_grad()
def test_a_few_rows_find_what_many_do(shape: tuple[int, ...], has_bias: bool, seed: int) -> None:
    torch.manual_seed(seed)
    x, weight = torch.randn(*shape, 20), torch.randn(30, 20)
    bias = torch.randn(30) if has_bias else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "LARGE", 1)
        found = linear(x, weight, bias)
    wanted = F.linear(x, weight, bias)
    assert found.shape == wanted.shape
    assert found.is_contiguous()
    assert found.numel() == 0 or close(found, wanted)


def ways(monkeypatch: pytest.MonkeyPatch, x: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """The answer of a large matrix, and whether it went the way of a few rows."""
    part, right = Linear(512, 512), []
    monkeypatch.setattr(room, "_few_rows", lambda *a, ask=room._few_rows: right.append(ask(*a)) or right[-1])
    return part(x), any(right)


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="another library multiplies here")
def test_who_goes_that_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        assert ways(monkeypatch, torch.randn(FEW, 512))[1]
        assert not ways(monkeypatch, torch.randn(FEW + 1, 512))[1]
        with torch.autocast("cpu", torch.bfloat16):
            found, few = ways(monkeypatch, torch.randn(1, 512))
        assert found.dtype is torch.bfloat16
        assert not few
    found, few = ways(monkeypatch, torch.randn(1, 512))
    assert found.requires_grad
    assert not few
