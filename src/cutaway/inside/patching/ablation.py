"""Ablation, swept over layers, positions or heads: a `Sweep` without a second run.

    found = ablate_sweep(model, ids, metric=LogitDifference(right, wrong))
    found.effects       # layer × position: by how much the metric falls without it
    ablate_sweep(model, ids, metric=metric, over="heads", how="mean")

An ablated place becomes zero, the mean over the real positions of all rows, or its value in `source` (resample).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cutaway.arguments import option, with_options
from cutaway.errors import InputError
from cutaway.inside.patching.activations import mean_activations, real_tokens_of, record_activations
from cutaway.inside.patching.interventions import fit_source
from cutaway.inside.patching.metrics import Measure
from cutaway.inside.patching.patched_runs import CleanRun
from cutaway.inside.patching.place import axes_of
from cutaway.inside.patching.sweep import Sweep, measure, measure_cells
from cutaway.inside.patching.sweep_plan import Inputs, SweepCells, SweepOptions, SweepPlan
from cutaway.inside.progress import Progress, no_progress
from cutaway.model.model import Model
from cutaway.model.tap import uncompiled, watch


@dataclass(frozen=True, kw_only=True)
class AblationOptions(SweepOptions):
    """Which places are ablated, and how."""

    how: str = option("zero", "zero, mean (over the rows and their real positions) or resample (from `source`).")
    source: Inputs | None = option(None, "The inputs of the run that resampled values come from.")

    def check(self) -> None:
        if self.how not in ("zero", "mean", "resample"):
            raise InputError(f"how={self.how!r} is not one of zero, mean, resample")
        if (self.how == "resample") != (self.source is not None):
            raise InputError("resampling takes values from another run, source=…; zero and mean need none")


@with_options
@torch.no_grad()
def ablate_sweep(
    model: Model,
    *inputs: Tensor,
    metric: Measure,
    progress: Progress = no_progress,
    options: AblationOptions,
    **more: Any,
) -> Sweep:
    """Ablates what `over` names, a cell at a time. Further inputs (`real=`, `source_real=`) go to the model.

    >>> ablate_sweep(model, ids, metric=metric, over="heads", how="mean").effects.shape
    """
    how, source, over = options.how, options.source, options.over
    if how == "mean" and over.endswith(("scores", "pattern")):
        raise InputError(f"over={over!r} has no mean over positions, whose keys differ: how='zero' or 'resample'")
    model = uncompiled(model)
    plan = SweepPlan.of(model, inputs, inputs if source is None else source, options)
    taps = [plan.tap(layer) for layer in plan.layers]
    with watch(model, *taps) as own:
        run = CleanRun.of(model, plan.side, plan.clean, more)
    base = measure(metric, run.logits, more.get("real"))
    other: Mapping[str, Tensor] = {tap: torch.zeros_like(own[tap]) for tap in taps}
    if how == "mean":
        _check_many(model, taps[0], own[taps[0]], more)
        other = mean_activations(model, *plan.clean, places=taps, **more)
    if how == "resample":
        other = record_activations(model, *plan.corrupted, places=taps, **more)
    instead = {tap: fit_source(tap, other, own[tap]) for tap in taps}
    cells = SweepCells.of(plan, own[taps[0]], options)
    values = measure_cells(run, plan, cells, instead, metric, options.rows, progress)
    return Sweep.of(plan, cells, how, values, base, None)


def _check_many(model: Model, tap: str, value: Tensor, more: Mapping[str, Any]) -> None:
    """Refuses the mean of a single position, which is its own value."""
    real = real_tokens_of(model, tap, more)
    n = int(real.sum()) if real is not None else len(value) * value.shape[axes_of(tap, value).position]
    if n < 2:
        raise InputError(
            f"{tap!r} has {n} position{'' if n == 1 else 's'}, and the mean of one is its own value: give more text, "
            "or make it zero"
        )
