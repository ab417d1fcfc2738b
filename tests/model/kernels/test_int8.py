"""8-bit matrices: close to the original, and no row depends on its neighbours."""

import copy

import pytest
import torch
from helpers.decode_batches import beams, continuations, translations
from helpers.tiny_models import ALL, DECODERS, TRANSLATORS, inputs, some_ids, tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cutaway.errors import CheckpointError, ConfigError
from cutaway.model.kernels import int8
from cutaway.model.kernels.int8 import Int8Linear
from cutaway.model.precision import with_precision

Sizes = st.tuples(
    st.integers(1, 9) | st.integers(int8.MANY, int8.MANY + 9),
    st.integers(1, 70),
    st.integers(1, 40),
    st.integers(0, 99),
)


def numbers(n_rows: int, n_in: int, n_out: int, seed: int) -> tuple[torch.Tensor, nn.Linear]:
    """Rows and weights of very different sizes."""
    torch.manual_seed(seed)
    linear = nn.Linear(n_in, n_out)
    linear.weight.data *= 10 ** torch.empty(n_out, 1).uniform_(-3, 3)
    return torch.randn(n_rows, n_in) * 10 ** torch.empty(n_rows, 1).uniform_(-4, 4), linear


def bound(x: torch.Tensor, linear: nn.Linear) -> torch.Tensor:
    """What rounding each activation and each weight by half a step may do to a sum, at most."""
    w = linear.weight.detach().double()
    x = x.double()
    step_x = x.abs().amax(1, keepdim=True) / int8.levels() / 2
    step_w = w.abs().amax(1) / 127 / 2
    return (
        step_x * w.abs().sum(1) + x.abs().sum(1, keepdim=True) * step_w + x.shape[1] * step_x * step_w
    ) * 1.001 + 1e-6


@pytest.fixture(params=[127, 63], ids=["8 bits", "7 bits"])
def bits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(int8, "levels", lambda: request.param)
    return request.param


@pytest.mark.parametrize("kernel", [True, False])
@settings(max_examples=60)
@given(sizes=Sizes)
def test_the_error_is_that_of_rounding(kernel: bool, sizes: tuple[int, int, int, int]) -> None:
    x, linear = numbers(*sizes)
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        if not kernel:
            patch.setattr(int8, "has_kernel", lambda: False)
        found = Int8Linear(linear.weight, linear.bias)(x).double()
    assert ((found - linear.double()(x.double())).abs() <= bound(x, linear) + found.abs() * 1e-5).all()


@torch.no_grad()
def test_the_largest_sums_do_not_overflow(bits: int) -> None:
    for n in (3, int8.MANY):
        weight, x = torch.ones(8, 2048), torch.ones(n, 2048)
        found = Int8Linear(torch.cat([weight, -weight]), None)(torch.cat([x, -x]))
        expected = 2048 * torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).repeat_interleave(n, 0).repeat_interleave(8, 1)
        assert torch.allclose(found, expected, rtol=1e-5)


@settings(max_examples=60)
@given(sizes=Sizes, cut=st.integers(0, 9))
@torch.no_grad()
def test_a_row_has_the_same_bits_in_any_company(sizes: tuple[int, int, int, int], cut: int) -> None:
    x, linear = numbers(*sizes)
    rounded = Int8Linear(linear.weight, linear.bias)
    parts = [part for part in (x[:cut], x[cut:]) if len(part)]
    together = rounded(x)
    assert torch.equal(torch.cat([rounded(part) for part in parts]), together)
    assert torch.equal(torch.cat([rounded(row[None]) for row in x]), together)
    assert torch.equal(rounded(x[None])[0], together)


@pytest.mark.parametrize("kernel", [True, False])
@torch.no_grad()
def test_a_row_of_zeros_gives_the_bias(kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "has_kernel", lambda: kernel)
    linear = nn.Linear(5, 7)
    assert torch.equal(Int8Linear(linear.weight, linear.bias)(torch.zeros(2, 5)), linear.bias.expand(2, 7))
    assert torch.equal(Int8Linear(torch.zeros(3, 5), None)(torch.randn(2, 5)), torch.zeros(2, 3))


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_every_family_runs_in_8_bits(name: str) -> None:
    model, given_ = tiny(name, dtype=torch.float32), inputs(name, dtype=torch.float32)
    plain = model(*given_)
    rounded = with_precision(copy.deepcopy(model), "int8")
    found = rounded(*given_)
    assert 0 < (found - plain).abs().max() < 0.1 * plain.abs().max()
    assert torch.equal(copy.deepcopy(rounded)(*given_), found)
    kept = [name for name, part in rounded.named_modules() if isinstance(part, nn.Linear)]
    assert all(name.split(".")[-1] in ("project", "classes", "dense") for name in kept)


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize("beam", [1, 4])
def test_fault_17_in_8_bits_a_sentence_is_translated_alone_as_in_any_batch(name: str, beam: int) -> None:
    model = with_precision(tiny(name, dtype=torch.float32, start_id=1), "int8")
    source = some_ids(5, 9)
    real = torch.arange(9)[None] < torch.tensor([9, 3, 5, 1, 7])[:, None]
    options = {"n": 12, "beam": beam, "end_ids": range(5, 20)}
    together = translations(model, source, real=real, **options)
    assert together == [
        translations(model, row[its][None], **options)[0] for row, its in zip(source, real, strict=True)
    ]
    assert together == translations(model, source, real=real, rows=2, **options)


@pytest.mark.parametrize("name", DECODERS)
def test_fault_17_in_8_bits_a_prompt_is_continued_alone_as_in_any_batch(name: str) -> None:
    model = with_precision(tiny(name, dtype=torch.float32), "int8")
    ids = some_ids(3, 7)
    real = torch.arange(7)[None] < torch.tensor([7, 2, 4])[:, None]
    together = continuations(model, ids, n=10, real=real, end_ids=[])
    alone = [continuations(model, row[its][None], n=10, end_ids=[])[0] for row, its in zip(ids, real, strict=True)]
    assert together == alone


def test_what_8_bits_cannot_do_is_refused(tmp_path) -> None:
    from cutaway.checkpoints import save

    model = with_precision(tiny("gpt2", dtype=torch.float32), "int8")
    with pytest.raises(ConfigError, match="8-bit matrices already"):
        with_precision(model, "int8")
    with pytest.raises(CheckpointError, match="8-bit"):
        save(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert len(beams(with_precision(tiny("transformer", dtype=torch.float32), "int8"), some_ids(1, 3), n=3)[0]) == 4
