"""Attribution by gradients: how much each word, patch or pixel contributes to a number that the model computes.

    gradient × input:       x · ∂F/∂x                                              how F would change if x shrank
    integrated gradients:   (x − b) · ∫₀¹ ∂F/∂x (b + α(x − b)) dα                  (Sundararajan et al. 2017)

F is a *metric*: a function from the model's logits to one number for each row of the batch, or one for each of several
outputs. Integrated gradients add up to F(x) − F(b), the difference between the input and a baseline b; how far the sum
over a finite number of steps is off is returned as `error`.

    found = integrated_gradients(model, ids, metric=lambda logits: logits[:, -1, 262])[0]
    found.scores[0]         # of each token; they add up to found.total − found.of_baseline

Gradients are taken at a tap: the token embeddings before positions are added, so that a baseline means «some other word
here», not «nothing, nowhere».

The integral is approximated by a sum over steps. Equal steps do badly, because a trained model changes most on a short
part of the path. With the rule `even_change`, a few forward passes, which are cheap, first find where the metric
changes, and the steps are taken there. Without a number of steps, the path is bisected where its scores do not add up
yet: at the kinks of a ReLU, and near a baseline that a norm scales up.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.arguments import Options, checked, option, with_options
from cutaway.errors import InputError
from cutaway.inside.attribution.gradients import Gradients
from cutaway.inside.attribution.reference_inputs import Baselines, Keep, baseline_values
from cutaway.inside.attribution.result import Attribution
from cutaway.inside.patching.metrics import Measure
from cutaway.inside.progress import Progress, no_progress
from cutaway.model.upcast import upcast

Node = tuple[float, float]  # where on the path, and how much it counts
Piece = tuple[float, float]  # a part of the path: from, to
WITHIN = 0.01  # of the whole; no picture shows less
ROUNDING = 4096  # times the machine epsilon of the metric: smaller changes are rounding errors
PIECES, EACH, MOST_STEPS = 4, 4, 1024  # pieces at first; steps in each piece, and in all
LOOKS = 32  # parts of the path on which the change is measured
EVERYWHERE = 0.1  # the share of the steps that is spread evenly over the path


@checked
def gradient_x_input(
    model: nn.Module, *inputs: Tensor, metric: Measure, at: str | None = None, **more: Any
) -> list[Attribution]:
    """For each row, the input times the gradient of the metric: one pass, and exact where the model is linear.

    >>> gradient_x_input(model, ids, metric=metric)[0].scores.shape
    """
    asked = Gradients(model, inputs, more, metric, at)
    values = asked.values()
    found, slopes = asked.slopes(values, copies=1)
    scores = torch.cat([_times(value, slope, asked.pixels) for value, slope in zip(values, slopes, strict=True)], -1)
    return asked.attributions("gradient_x_input", scores[:, 0], found[0])


@dataclass(frozen=True, kw_only=True)
class IntegrationOptions(Options):
    """How the integral is taken."""

    baseline: Baselines = option("zero", "What the input is compared with: see `inside.attribution.reference_inputs`.")
    keep: Keep = option(None, "True at the places of the input that the baseline keeps.")
    within: float = option(WITHIN, "How exactly the scores add up, unless `steps` are given.")
    steps: int | None = option(None, "Number of steps; by default as many as are needed.", least=1)
    rule: str = option(
        "gauss_legendre",
        "Where `steps` are taken: gauss_legendre, midpoint, or even_change, the middles of pieces on which the metric "
        "changes equally, which needs the fewest.",
    )
    batch_tokens: int = option(2048, "Number of tokens that are computed at a time (at least one copy of the batch).")

    def check(self) -> None:
        if self.rule not in RULES:
            raise InputError(f"rule={self.rule!r} is not one of {', '.join(RULES)}")


@with_options
def integrated_gradients(
    model: nn.Module,
    *inputs: Tensor,
    metric: Measure,
    at: str | None = None,
    progress: Progress = no_progress,
    options: IntegrationOptions,
    **more: Any,
) -> list[Attribution]:
    """For each row, the input minus the baseline, times the metric's mean gradient on the way from one to the other.

    >>> integrated_gradients(model, ids, metric=metric, steps=4)[0].error

    `at` is "tokens", or "output" for their sum with the positions; for images "patches", "output" or "pixels". Without
    `steps`, as many are taken as the scores need to add up `within` 1 %, at most about 1024. `progress` counts steps;
    their total is then the largest that is possible.
    """
    steps, within = options.steps, options.within
    asked = Gradients(model, inputs, more, metric, at)
    ends = asked.values()
    done, most = 0, MOST_STEPS if steps is None else steps

    def count(more_steps: int) -> None:
        nonlocal done
        done = min(done + more_steps, most)
        progress(done, most)

    starts = baseline_values(asked, ends, options.baseline, options.keep)
    path = IntegrationPath(asked, starts, ends, options.batch_tokens, count)
    of_start, of_end = path.metrics([0.0, 1.0])
    if steps is None:
        scores, steps = path.halved_until(within, of_start, of_end)
    else:
        scores = path.integral(RULES[options.rule](path, steps)).sum(dim=0)
    progress(most, most)
    return asked.attributions("integrated_gradients", scores.to(of_end.dtype), of_end, of_start, steps)


@dataclass(frozen=True, eq=False)
class IntegrationPath:
    """The straight line from a baseline to the input."""

    asked: Gradients
    starts: Sequence[Tensor]
    ends: Sequence[Tensor]
    batch_tokens: int
    count: Callable[[int], None]  # called with the number of steps that were taken

    def at(self, places: Sequence[float]) -> list[Tensor]:
        return [torch.cat([a.lerp(b, place) for place in places]) for a, b in zip(self.starts, self.ends, strict=True)]

    def _some(self, several: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Chunks of at most `batch_tokens` tokens."""
        n = max(1, self.batch_tokens // sum(end[..., 0].numel() for end in self.ends))
        return (several[first : first + n] for first in range(0, len(several), n))

    @torch.no_grad()
    def metrics(self, places: Sequence[float]) -> Float[Tensor, "place batch output"]:
        return torch.cat([self.asked.metrics(self.at(some), len(some)) for some in self._some(places)])

    def integral(self, nodes: Sequence[Node]) -> Float[Tensor, "node output batch input"]:
        """The contribution of each node to the scores."""
        found = []
        for some in self._some(nodes):
            _, slopes = self.asked.slopes(self.at([place for place, _ in some]), copies=len(some))
            ways = [b - a for a, b in zip(self.starts, self.ends, strict=True)]
            shares = [_times(*of, self.asked.pixels) for of in zip(ways, slopes, strict=True)]
            weights = torch.tensor([weight for _, weight in some], dtype=torch.float64).to(shares[0])
            found.append(torch.cat(shares, -1).transpose(0, 1) * weights[:, None, None, None])
            self.count(len(some))
        return torch.cat(found)

    def halved_until(
        self, within: float, of_start: Tensor, of_end: Tensor
    ) -> tuple[Float[Tensor, "output batch input"], int]:
        """The scores, and the number of steps. Pieces of the path whose scores do not add up to the change of the
        metric are bisected."""
        cuts = [number / PIECES for number in range(PIECES + 1)]
        pieces = list(pairwise(cuts))
        known = dict(zip(cuts, [of_start, *self.metrics(cuts[1:-1]), of_end], strict=True))
        limits = torch.finfo(of_end.dtype)
        rounding = ROUNDING * limits.eps * torch.maximum(of_start.abs(), of_end.abs()).amax(dim=1)
        whole = (of_end - of_start).abs().amax(dim=1).maximum(rounding).clamp(min=limits.tiny)
        scores: dict[Piece, Tensor] = {}
        gaps: dict[Piece, Tensor] = {}
        while pieces:
            nodes = [(a + (b - a) * at, (b - a) * weight) for a, b in pieces for at, weight in gauss_legendre(EACH)]
            scores |= dict(zip(pieces, self.integral(nodes).unflatten(0, (-1, EACH)).sum(dim=1), strict=True))
            for a, b in pieces:
                gaps[a, b] = (scores[a, b].sum(dim=-1).T - (known[b] - known[a])) / whole[:, None]
            pieces = worst_pieces(gaps, within) if EACH * len(scores) < MOST_STEPS else []
            middles = [(a + b) / 2 for a, b in pieces]
            known |= dict(zip(middles, self.metrics(middles), strict=True)) if middles else {}
            for piece in pieces:
                del scores[piece], gaps[piece]
            pieces = [half for a, b in pieces for half in ((a, (a + b) / 2), ((a + b) / 2, b))]
        return torch.stack(list(scores.values())).sum(dim=0), EACH * len(scores)


def worst_pieces(gaps: dict[Piece, Float[Tensor, "batch output"]], within: float) -> list[Piece]:
    """The pieces that make up three quarters of the gap; none once it is small: at most `within` in sum, and at most
    10 % without cancellation."""
    sizes = {piece: float(gap.abs().max()) for piece, gap in gaps.items()}
    total = left = sum(sizes.values())
    found: list[Piece] = []
    if float(torch.stack(list(gaps.values())).sum(dim=0).abs().max()) <= within and total <= max(0.1, within):
        return found
    for piece in sorted(sizes, key=lambda piece: -sizes[piece]):
        if left > total / 4:
            found += [piece] if piece[0] < sum(piece) / 2 < piece[1] else []  # a jump is at one point
            left -= sizes[piece]
    return found


def _times(way: Tensor, slopes: Tensor, pixels: bool) -> Float[Tensor, "output copy batch input"]:
    """The product at each place, summed over the numbers of its vector or the channels of its pixel."""
    product = upcast(way) * slopes
    return product.sum(dim=3).flatten(3) if pixels else product.sum(dim=-1)


def even_change(path: IntegrationPath, n: int) -> list[Node]:
    """The middles of n pieces on which the metric changes equally, by the output that changes most."""
    places = np.linspace(0, 1, LOOKS + 1)
    change = path.metrics(places.tolist()).double().diff(dim=0).abs().amax(dim=2)  # piece batch
    share = (change / change.sum(dim=0).clamp(min=1e-300)).mean(dim=1).cpu().numpy()
    so_far = np.concatenate([[0.0], np.cumsum((1 - EVERYWHERE) * share + EVERYWHERE / LOOKS)])
    cuts = np.interp(np.linspace(0, so_far[-1], n + 1), so_far, places)
    return [((a + b) / 2, b - a) for a, b in pairwise(cuts.tolist())]


def gauss_legendre(n: int) -> list[Node]:
    """Nodes in 0 … 1 and their weights, exact for polynomials of degree 2n − 1."""
    places, weights = np.polynomial.legendre.leggauss(n)
    return list(zip((0.5 * (places + 1)).tolist(), (0.5 * weights).tolist(), strict=True))


def midpoint(n: int) -> list[Node]:
    """The middle of n equal parts."""
    return [((i + 0.5) / n, 1 / n) for i in range(n)]


RULES: dict[str, Callable[[IntegrationPath, int], list[Node]]] = {
    "gauss_legendre": lambda _, n: gauss_legendre(n),
    "midpoint": lambda _, n: midpoint(n),
    "even_change": even_change,
}
