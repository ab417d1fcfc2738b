"""What breaks? Every layer, position or head of one run taken away in turn, a layer's cells side by side in one pass.

    found = ablate_sweep(model, ids, metric=LogitDifference(right, wrong))
    found.effects       # layer × position: by how much the metric moves
    ablate_sweep(model, ids, metric=metric, over="heads", how="mean")

A place that is taken away becomes zero, the mean over this run's real positions, or what `source` has there (resample).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.errors import InputError
from cutaway.inside.metrics import Metric
from cutaway.inside.patch import Patch, fitting, intervene, means, record
from cutaway.inside.place import Place, written
from cutaway.inside.sweep import Cells, Given, Measure, Plan, measured
from cutaway.model.model import Model


@dataclass(frozen=True, eq=False)
class Ablations:
    """The metric of every cell; `base` is that of the run as it was."""

    tap: str
    how: str
    layers: tuple[int, ...]
    positions: tuple[int, ...] | None
    heads: tuple[int, ...] | None
    values: Float[Tensor, "layer *cells"]
    base: float

    @property
    def effects(self) -> Float[Tensor, "layer *cells"]:
        """By how much the metric moves without the cell: below 0 it was needed."""
        return self.values - self.base

    def to_dict(self) -> dict[str, Any]:
        return {
            "tap": self.tap,
            "how": self.how,
            "layers": list(self.layers),
            "positions": None if self.positions is None else list(self.positions),
            "heads": None if self.heads is None else list(self.heads),
            "values": self.values.tolist(),
            "effects": self.effects.tolist(),
            "base": self.base,
        }


@torch.no_grad()
def ablate_sweep(
    model: Model,
    *inputs: Tensor,
    metric: Metric | Measure,
    how: str = "zero",
    source: Given | None = None,
    over: str = "residual",
    side: str | None = None,
    layers: Sequence[int] | None = None,
    rows: int = 64,
    **more: Any,
) -> Ablations:
    """Takes away what `over` names (as in `sweep`), a position or a head of one layer at a time, of one row."""
    if how not in ("zero", "mean", "resample"):
        raise InputError(f"how={how!r} is not one of zero, mean, resample")
    if (how == "resample") != (source is not None):
        raise InputError("resampling takes values from another run, source=…; zero and mean need none")
    if how == "mean" and over.endswith(("scores", "pattern")):
        raise InputError(f"over={over!r} has no mean over positions, whose keys differ: how='zero' or 'resample'")
    if len(inputs[0]) != 1:
        raise InputError(f"{len(inputs[0])} rows: a sweep of ablations is of one")
    plan = Plan.of(model, inputs, inputs if source is None else source, over, side, layers)
    taps = [plan.tap(layer) for layer in plan.layers]
    base = measured(metric, model(*plan.clean, **more), more.get("real")).item()
    own = record(model, *plan.clean, places=taps, **more)
    other: Mapping[str, Tensor] = {tap: torch.zeros_like(own[tap]) for tap in taps}
    if how == "mean":
        other = means(model, *plan.clean, places=taps, **more)
    if how == "resample":
        other = record(model, *plan.corrupted, places=taps, **more)
    cells = Cells.of(plan, own[taps[0]], None, None)
    values = []
    for tap in taps:
        instead = fitting(tap, other, own[tap])
        copies = [
            written(tap, own[tap], Place(tap, change.head, _positions(change.positions)), instead)
            for change in cells.changes
        ]
        values.append(torch.cat([_measured(model, plan, metric, tap, some, more) for some in _portions(copies, rows)]))
    sizes = [len(labels) for labels in (cells.positions, cells.heads) if labels is not None]
    found = torch.stack(values).reshape(len(taps), *sizes)
    return Ablations(plan.tap("*"), how, plan.layers, cells.positions, cells.heads, found, base)


def _positions(mask: Tensor | None) -> list[int] | None:
    return None if mask is None else mask[0].nonzero()[:, 0].tolist()


def _portions(copies: list[Tensor], rows: int) -> list[list[Tensor]]:
    return [copies[first : first + rows] for first in range(0, len(copies), rows)]


def _measured(
    model: Model, plan: Plan, metric: Metric | Measure, tap: str, copies: list[Tensor], more: dict[str, Any]
) -> Float[Tensor, " copy"]:
    """The metric of each copy of the run, which has its own value at the tap."""
    n = len(copies)
    repeated = {name: x.repeat(n, *[1] * (x.ndim - 1)) if isinstance(x, Tensor) else x for name, x in more.items()}
    with intervene(model, Patch(Place(tap), torch.cat(copies))):
        logits = model(*(x.repeat(n, *[1] * (x.ndim - 1)) for x in plan.clean), **repeated)
    return measured(metric, logits)
