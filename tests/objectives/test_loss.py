"""The summed loss is cross-entropy, whatever part of it is computed at once, and so is its gradient."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_models import some_ids, tiny
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cutaway.model.tap import edit, watch
from cutaway.objectives import IGNORED, summed_cross_entropy, token_loss

PRECISIONS = {torch.float64: 1e-12, torch.float32: 1e-6}


def case(n: int, vocab: int, ignored: float, bias: bool, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """Hidden states, a matrix and perhaps a bias in double precision, and targets of which some do not count."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    given = {"hidden": draw(n, 6), "matrix": draw(vocab, 6)} | ({"bias": draw(vocab)} if bias else {})
    targets = torch.randint(vocab, (n,), generator=generator)
    return given, targets.masked_fill(torch.rand(n, generator=generator) < ignored, IGNORED)


def result(given: dict[str, Tensor], dtype: torch.dtype, loss_of: Any) -> dict[str, Tensor]:
    """The loss, and the gradient of 3 × the loss, in double precision."""
    given = {name: tensor.to(dtype, copy=True).requires_grad_() for name, tensor in given.items()}
    loss = loss_of(**given)
    (3 * loss).backward()
    return {"loss": loss.detach().double()} | {name: tensor.grad.double() for name, tensor in given.items()}  # type: ignore[union-attr]


def plain(targets: Tensor, smoothing: float) -> Any:
    """What torch computes, all at once."""

    def loss_of(hidden: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
        scores = F.linear(hidden, matrix, bias)
        return F.cross_entropy(scores, targets, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing)

    return loss_of


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@given(
    n=st.integers(1, 40),
    vocab=st.integers(2, 30),
    at_once=st.none() | st.integers(1, 50),
    ignored=st.sampled_from([0.0, 0.5, 1.0]),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_is_cross_entropy_however_many_positions_are_computed_at_once(
    dtype: torch.dtype, smoothing: float, n: int, vocab: int, at_once: int | None, ignored: float, bias: bool, seed: int
) -> None:
    inputs, targets = case(n, vocab, ignored, bias, seed)
    theirs = result(inputs, torch.float64, plain(targets, smoothing))
    ours = result(
        inputs, dtype, lambda **x: summed_cross_entropy(**x, targets=targets, smoothing=smoothing, at_once=at_once)
    )
    for name, value in theirs.items():
        size = value.abs().max().clamp(min=3 * n**0.5)  # of what is added up, three times, and may cancel out
        assert (ours[name] - value).abs().max() <= PRECISIONS[dtype] * size, name


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_gradient_is_the_slope(smoothing: float) -> None:
    inputs, targets = case(7, 5, 0.3, True, 0)

    def scaled(hidden: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
        return -2.5 * summed_cross_entropy(hidden, matrix, targets, bias=bias, smoothing=smoothing, at_once=3)

    assert torch.autograd.gradcheck(scaled, tuple(tensor.requires_grad_() for tensor in inputs.values()))


def test_only_what_learns_gets_a_gradient() -> None:
    inputs, targets = case(7, 5, 0.3, True, 0)
    inputs["hidden"].requires_grad_()
    summed_cross_entropy(inputs["hidden"], inputs["matrix"], targets, bias=inputs["bias"]).backward()
    assert inputs["hidden"].grad is not None
    assert inputs["matrix"].grad is None
    with torch.no_grad():
        assert not summed_cross_entropy(inputs["hidden"], inputs["matrix"], targets).requires_grad


def test_a_second_derivative_is_refused_not_wrong() -> None:
    inputs, targets = case(7, 5, 0.0, False, 0)
    hidden = inputs["hidden"].requires_grad_()
    loss = summed_cross_entropy(hidden, inputs["matrix"], targets) ** 2
    (slope,) = torch.autograd.grad(loss, hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_no_positions_give_no_loss() -> None:
    hidden, matrix = torch.zeros(2, 0, 6, requires_grad=True), torch.ones(5, 6, requires_grad=True)
    loss = summed_cross_entropy(hidden, matrix, torch.zeros(2, 0, dtype=torch.long))
    loss.backward()
    assert loss == 0
    assert not matrix.grad.any()  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5"])
def test_somebody_who_watches_the_scores_changes_nothing(name: str) -> None:
    """T5 scales what its head reads, BERT has a layer before the scores."""
    model, targets = tiny(name), some_ids(2, 7, seed=3)
    hidden = torch.randn(2, 7, 24, dtype=torch.float64)
    scores = "head.words.logits" if name == "bert" else "head.logits"
    unwatched = token_loss(model.head, hidden, targets, smoothing=0.1)
    with watch(model, scores) as seen:
        watched = token_loss(model.head, hidden, targets, smoothing=0.1)
    assert seen[scores].shape == (2, 7, 50)
    torch.testing.assert_close(watched, unwatched, rtol=1e-12, atol=0)
    with edit(model, {scores: torch.zeros_like}):
        edited = token_loss(model.head, hidden, targets)
    torch.testing.assert_close(edited, 14 * torch.tensor(50.0, dtype=torch.float64).log())


def test_under_autocast_sums_stay_wide() -> None:
    """Scores in bfloat16, but 4,000 of their losses, and of their gradients, are added up in single precision."""
    inputs, targets = case(4000, 30, 0.0, True, 0)
    exact = result(inputs, torch.float64, plain(targets, 0.0))
    with torch.autocast("cpu", torch.bfloat16):
        ours = result(inputs, torch.float32, lambda **x: summed_cross_entropy(**x, targets=targets))
    assert ours["loss"] == pytest.approx(exact["loss"].item(), rel=1e-3)
    for name in ("matrix", "bias"):
        assert (ours[name] - exact[name]).norm() <= 0.01 * exact[name].norm()
