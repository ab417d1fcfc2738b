"""Attribution patching: what every patch would do, estimated from one forward and one backward pass.

    effect of a patch ≈ (clean − corrupted) · ∂ metric / ∂ value,   at the corrupted run

This is the first-order term: exact if the rest of the model is linear in the value, worst where a norm or a softmax is
far from linear (early residuals). `compare_sweeps` says how good it is. (Nanda 2023; Syed et al. 2023.)
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from cutaway.arguments import checked, with_options
from cutaway.errors import InputError
from cutaway.inside.patching.metrics import Measure
from cutaway.inside.patching.place import axes_of
from cutaway.inside.patching.sweep import Sweep, measure
from cutaway.inside.patching.sweep_plan import Inputs, PlaceOptions, SweepCells, SweepPlan
from cutaway.inside.residual.decompose import check_gradients
from cutaway.model.finite import check_scores
from cutaway.model.model import Model
from cutaway.model.tap import edit, tap_names, watch


@with_options
def estimate_sweep(
    model: Model,
    clean: Inputs,
    corrupted: Inputs,
    metric: Measure,
    *,
    options: PlaceOptions,
    **more: Any,
) -> Sweep:
    """What `patch_sweep` would find with the same options, to first order.

    >>> estimate_sweep(model, ids, other_ids, metric, over="heads").effects.shape
    """
    check_gradients(model)
    plan = SweepPlan.of(model, clean, corrupted, options)
    taps = [plan.tap(layer) for layer in plan.layers]
    with torch.no_grad(), watch(model, *taps) as wanted:
        high = measure(metric, model(*plan.clean, **more), more.get("real"))
    # the stream is where gradients begin, whether or not the weights learn; an edit puts patterns on the way
    leaves = {tap: _leaf for tap in tap_names(model) if tap.endswith("embedding.output")}
    with torch.enable_grad(), edit(model, leaves | dict.fromkeys(taps, _same)), watch(model, *taps) as seen:
        logits = model(*plan.corrupted, **more)
        check_scores(model, logits)
        low = measure(metric, logits)
    gradients = torch.autograd.grad(low.sum(), [seen[tap] for tap in taps])
    low = low.detach()
    cells = SweepCells.of(plan, wanted[taps[0]], options)
    values = []
    for tap, gradient in zip(taps, gradients, strict=True):
        moved = (wanted[tap] - seen[tap].detach()) * gradient
        values.append(
            torch.stack([low + _within(tap, moved, change.positions, change.head) for change in cells.changes])
        )
    return Sweep.of(plan, cells, "patch", torch.stack(values), high, low)


def _leaf(value: Tensor) -> Tensor:
    return value.detach().requires_grad_()


def _same(value: Tensor) -> Tensor:
    return value


def _within(tap: str, moved: Tensor, positions: Tensor | None, head: int | None) -> Tensor:
    """The sum over one cell for each row."""
    axes = axes_of(tap, moved)
    if positions is not None:
        shape = [1] * moved.ndim
        shape[0], shape[axes.position] = positions.shape
        moved = moved * positions.view(shape)
    if head is not None:
        moved = moved[:, head]
    return moved.flatten(1).sum(dim=1)


@dataclass(frozen=True)
class SweepComparison:
    """How an estimate agrees with a sweep, cell by cell."""

    pearson: float | None  # None if one of them is the same in all cells
    rank: float | None  # Spearman's
    sign: float  # the share of cells whose effects have the same sign

    def to_dict(self) -> dict[str, float | None]:
        return asdict(self)


@checked
def compare_sweeps(found: Sweep, estimated: Sweep) -> SweepComparison:
    """Compares a sweep with its estimate.

    >>> compare_sweeps(*(sweep(model, ids, other_ids, metric) for sweep in (patch_sweep, estimate_sweep))).sign
    """
    if (found.tap, found.how, found.values.shape) != (estimated.tap, estimated.how, estimated.values.shape):
        raise InputError(f"a sweep of {found.tap} and an estimate of {estimated.tap}: make both with the same words")
    a, b = _moved(found), _moved(estimated)
    same_way = (a.sign() == b.sign()).double().mean().item()
    return SweepComparison(_correlation(a, b), _correlation(_ranks(a), _ranks(b)), same_way)


def _moved(one: Sweep) -> Tensor:
    """By how much each cell moved the metric; rounding errors count as 0."""
    base = one.clean if one.corrupted is None else one.corrupted
    moved = (one.values.mean(dim=-1) - base.mean()).flatten()
    rounding = 16 * torch.finfo(moved.dtype).eps * one.values.abs().max()
    return torch.where(moved.abs() > rounding, moved, 0).double()


def _correlation(a: Tensor, b: Tensor) -> float | None:
    if (a == a[0]).all() or (b == b[0]).all():
        return None
    a, b = a - a.mean(), b - b.mean()
    return ((a @ b) / (a.norm() * b.norm())).item()


def _ranks(x: Tensor) -> Tensor:
    """Ranks; equal numbers have the mean of their ranks."""
    below, equal = (x[:, None] > x[None]).sum(dim=1), (x[:, None] == x[None]).sum(dim=1)
    return below.double() + (equal - 1) / 2
