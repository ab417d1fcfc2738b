"""Is an attribution faithful? Delete the inputs that it scores highest, and see how far the metric falls.

    curve = deletion_curve(model, ids, scores=found.scores, metric=metric)
    curve.faithfulness          # above 0: better than a random order; below: worse; None: the inputs do not matter

Inputs are replaced by the baseline in the order of their scores, the highest first. If the scores are faithful, the
metric falls faster than for a random order (Samek et al. 2017). Faithfulness has no upper bound, since the metric may
rise above its first value or fall below its last. It measures the method and the model together, and cannot detect
inputs that matter only together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cutaway.arguments import Options, option, with_options
from cutaway.errors import InputError
from cutaway.inside.attribution.gradients import Gradients
from cutaway.inside.attribution.reference_inputs import Baselines, baseline_values
from cutaway.inside.patching.metrics import Measure
from cutaway.inside.progress import Progress, counted_progress, no_progress

FLAT = 1e-5  # of the largest value: smaller changes are rounding errors
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, eq=False)
class DeletionCurve:
    """The metric of each output as more and more of the inputs are deleted."""

    shares: tuple[float, ...]
    values: Float[Tensor, "output share"]
    random: Float[Tensor, "output share"]  # the mean of random orders

    @property
    def faithfulness(self) -> float | None:
        """How far the curve is below the random one: the mean over shares, as a fraction of the whole change, summed
        over outputs, so that those that change much count more. None if nothing changes."""
        change = (self.values[:, 0] - self.values[:, -1]).abs().sum()
        if change <= FLAT * self.values.abs().amax(dim=1).sum():
            return None
        return float((self.random - self.values).mean(dim=1).sum() / change)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        curves = {"values": self.values.tolist(), "random": self.random.tolist()}
        return {"shares": list(self.shares), **curves, "faithfulness": self.faithfulness}


@dataclass(frozen=True, kw_only=True)
class DeletionOptions(Options):
    """What is deleted, and what the order is compared with."""

    among: Bool[Tensor, "output input"] | Bool[Tensor, " input"] | None = option(
        None, "True for the inputs that may be deleted; all of them unless given."
    )
    baseline: Baselines = option("zero", "What replaces a deleted input.")
    shares: Sequence[float] = option(SHARES, "The shares of the inputs after which the metric is taken.")
    n_random: int = option(8, "Number of random orders to compare with.", least=0)
    seed: int = option(0, "Seed of the random orders.")
    batch_tokens: int = option(8192, "Number of inputs that are computed at a time.", least=1)


@with_options
@torch.no_grad()
def deletion_curve(
    model: nn.Module,
    *inputs: Tensor,
    scores: Float[Tensor, "output input"],
    metric: Measure,
    at: str | None = None,
    progress: Progress = no_progress,
    options: DeletionOptions,
    **more: Any,
) -> DeletionCurve:
    """The metric of one row as its inputs are deleted, those with the highest scores first.

    Each output has its own order.

    >>> deletion_curve(model, ids, scores=torch.rand(1, ids.shape[1]), metric=metric).faithfulness
    """
    among, shares, n_random = options.among, options.shares, options.n_random
    asked = Gradients(model, inputs, more, metric, at)
    ends = asked.values()
    n_output, n_input = scores.shape
    if len(inputs[0]) != 1 or n_input != sum(_flat(end, asked.pixels).shape[1] for end in ends):
        raise InputError(f"scores of {n_input} inputs: give one row, and the scores of its inputs at {asked.places}")
    if among is not None and among.shape not in (scores.shape, scores.shape[1:]):
        raise InputError(f"among={tuple(among.shape)} for scores of {tuple(scores.shape)}: give one for each input")
    starts = baseline_values(asked, ends, options.baseline)
    may_go = torch.ones_like(scores, dtype=torch.bool) if among is None else among.expand_as(scores)
    # on the CPU, so that the orders are the same on every device
    generator = torch.Generator().manual_seed(options.seed)
    orders = [
        scores.double(),
        *(torch.rand(scores.shape, generator=generator).to(scores.device).double() for _ in range(n_random)),
    ]
    gone = torch.stack([_gone(order, may_go, shares) for order in orders]).flatten(0, 2)  # order · output · share
    found = []
    at_a_time = max(1, options.batch_tokens // n_input)
    for some in counted_progress(gone.split(at_a_time), progress):
        values, first = [], 0
        for start, end in zip(starts, ends, strict=True):
            n = _flat(end, asked.pixels).shape[1]
            mask = some[:, first : first + n].to(end.device)
            mask = mask.unflatten(1, end.shape[-2:])[:, None] if asked.pixels else mask[..., None]
            values.append(torch.where(mask, start, end))
            first += n
        found.append(asked.metrics(values, len(some))[:, 0])
    curves = torch.cat(found).unflatten(0, (len(orders), n_output, len(shares)))
    own = torch.arange(n_output, device=curves.device)
    curves = curves[:, own, :, own].transpose(0, 1)  # order × output × share, each output's own metric
    return DeletionCurve(tuple(shares), curves[0], curves[1:].mean(dim=0) if n_random else curves[0])


def _gone(
    order: Float[Tensor, "output input"], may_go: Bool[Tensor, "output input"], shares: Sequence[float]
) -> Bool[Tensor, "output share input"]:
    """Which inputs are deleted at each share, the highest scores first."""
    ranks = order.masked_fill(~may_go, float("-inf")).argsort(dim=-1, descending=True).argsort(dim=-1)
    counts = torch.tensor(shares, dtype=torch.float64, device=order.device) * may_go.sum(dim=-1, keepdim=True)
    return ranks[:, None] < counts.round()[..., None]


def _flat(end: Tensor, pixels: bool) -> Tensor:
    return end[:, 0].flatten(1) if pixels else end
