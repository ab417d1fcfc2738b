"""Two ways to the same numbers: the fused kernel and the formula written out, under every mask."""

import pytest
import torch
from helpers.tiny_models import ALL, close, inputs, tiny
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from cutaway.model.attention import attention, pattern_of
from cutaway.model.kernels.attend import attend, few_queries
from cutaway.model.masks import CAUSAL, EVERYWHERE, Mask, causal_mask, padding, same_document, sliding_window
from cutaway.model.tap import edit


def random_case(seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Mask]:
    torch.manual_seed(seed)
    q, k, v = (torch.randn(2, n, 5, 8, dtype=dtype, requires_grad=True) for n in (4, 2, 2))
    may_look = torch.rand(2, 1, 5, 5) > 0.5
    may_look[0, 0, 3] = False  # a query that may look nowhere
    return q, k, v, [EVERYWHERE, CAUSAL, Mask(may_look), Mask(may_look, causal=True)][seed % 4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(seed=st.integers(0, 999), biased=st.booleans(), scale=st.sampled_from([None, 1.0]))
def test_fused_equals_explicit_and_so_do_their_gradients(
    dtype: torch.dtype, seed: int, biased: bool, scale: float | None
) -> None:
    q, k, v, mask = random_case(seed, dtype)
    bias = torch.randn(1, 4, 5, 5, dtype=dtype) if biased else None
    ways = []
    for way in (attention, attend):
        out = way(q, k, v, mask, bias=bias, scale=scale)
        ways.append((out, *torch.autograd.grad(out.sin().sum(), (q, k, v))))
    assert all(close(fused, plain) for plain, fused in zip(*ways, strict=True))
    assert all(torch.isfinite(number).all() for way in ways for number in way)


@given(
    seed=st.integers(0, 999),
    batch=st.sampled_from([1, 6]),
    n=st.integers(1, 18),
    which=st.sampled_from(["all", "causal", "table", "written out", "blind"]),
    scale=st.sampled_from([None, 1.0]),
)
@example(seed=0, batch=6, n=5, which="causal", scale=None)  # drawn seldom
@torch.no_grad()
def test_a_few_queries_find_the_same(seed: int, batch: int, n: int, which: str, scale: float | None) -> None:
    """Beams on a CPU take a way of their own; keys stand in a longer store."""
    torch.manual_seed(seed)
    n_key = n if which == "causal" else 7
    q = torch.randn(batch, n, 4, 8, dtype=torch.float64).transpose(1, 2)
    k, v = (torch.randn(batch, 4, 20, 8, dtype=torch.float64)[:, :, :n_key] for _ in range(2))
    may_look = torch.rand(batch, 1, n, n_key) > 0.5
    may_look[..., 0] = True
    if which == "blind":
        may_look[:, :, -1] = False
    mask = {"all": EVERYWHERE, "causal": CAUSAL}.get(which, Mask(may_look, none_blind=which != "blind"))
    mask = mask.written_out(torch.float64) if which == "written out" else mask
    assert few_queries(q, k) == ((1 if batch == 6 else 2) <= n <= 16)
    assert close(attend(q, k, v, mask, scale=scale), attention(q, k, v, mask, scale=scale))
    if (which, n) != ("blind", 1):  # who may look nowhere has nothing to drop
        assert not torch.equal(attend(q, k, v, mask, dropout=0.9), attend(q, k, v, mask))


@pytest.mark.parametrize("name", ALL)
def test_a_model_on_the_explicit_path_gives_the_same_numbers(name: str) -> None:
    model, given_ = tiny(name), inputs(name)
    with edit(model, {"*.pattern": lambda pattern: pattern}):
        explicit = model(*given_)
    assert close(explicit, model(*given_))


@given(seed=st.integers(0, 999))
def test_a_pattern_is_a_distribution_over_what_may_be_seen(seed: int) -> None:
    q, k, _, mask = random_case(seed, torch.float64)
    pattern = pattern_of(q @ k.repeat_interleave(2, 1).transpose(-2, -1), mask)
    table = mask.table(5, 5, q.device)
    seen = torch.ones(2, 1, 5, 5, dtype=torch.bool) if table is None else table.expand(2, 1, 5, 5)
    assert (pattern[~seen.expand_as(pattern)] == 0).all()
    assert torch.allclose(pattern.sum(-1), seen.any(-1).double().expand(2, 4, 5))


@given(seed=st.integers(0, 999), size=st.sampled_from([1.0, 1e4, 1e30]))
def test_fault_12_finite_garbage_under_the_mask_changes_no_bit(seed: int, size: float) -> None:
    torch.manual_seed(seed)
    q, k, v = (torch.randn(2, 4, 5, 8) for _ in range(3))
    may_look = torch.rand(2, 1, 1, 5) > 0.5
    hidden = ~may_look[:, :, 0, :, None].expand_as(k)
    garbage_k, garbage_v = (x.masked_scatter(hidden, torch.randn(x.numel()) * size) for x in (k, v))
    for way in (attention, attend):
        assert torch.equal(way(q, k, v, Mask(may_look)), way(q, garbage_k, garbage_v, Mask(may_look)))


@given(seed=st.integers(0, 999), window=st.none() | st.integers(1, 6))
def test_masks_combine_to_what_each_of_them_allows(seed: int, window: int | None) -> None:
    torch.manual_seed(seed)
    real = torch.rand(2, 6) > 0.3
    documents = torch.randint(2, (2, 6)).cumsum(1)
    index = torch.arange(6)[None]
    table = causal_mask(index, real, documents, window).table(6, 6, index.device)
    assert table is not None
    for b in range(2):
        for q in range(6):
            for k in range(6):
                near = window is None or q - k < window
                allowed = k <= q and near and bool(real[b, k]) and documents[b, q] == documents[b, k]
                assert bool(table[b, 0, q, k]) == bool(allowed)


def test_a_causal_mask_alone_stays_a_word_for_the_kernel() -> None:
    assert causal_mask(torch.arange(6)[None]) is CAUSAL
    both = CAUSAL & EVERYWHERE
    assert both.causal
    assert both.may_look is None


def test_the_order_of_masks_does_not_matter() -> None:
    real, documents = torch.rand(2, 6) > 0.3, torch.tensor([[0, 0, 1, 1, 1, 2], [0, 1, 1, 2, 2, 2]])
    masks = [CAUSAL, padding(real), same_document(documents), sliding_window(3, torch.arange(6)[None])]
    forth, back = masks[0], masks[-1]
    for mask in masks[1:]:
        forth &= mask
    for mask in reversed(masks[:-1]):
        back &= mask
    tables = [mask.table(6, 6, real.device) for mask in (forth, back)]
    assert tables[0] is not None
    assert tables[1] is not None
    assert torch.equal(tables[0], tables[1])
