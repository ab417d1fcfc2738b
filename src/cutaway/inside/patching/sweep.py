"""Activation patching, swept over layers, positions and heads in a few passes.

`clean` and `corrupted` are two inputs of one shape ("Mary and John … John gave it to", "… Mary gave it to"). Each cell
of a sweep is the corrupted run with one place as in the clean run; the metric shows how much of the clean answer is
restored: 0 as corrupted, 1 as clean. (Causal tracing: Meng et al. 2022; activation patching: Heimersheim & Nanda 2024.)

    found = patch_sweep(model, clean, corrupted, LogitDifference(mary, john))
    found.effects      # layer × position
    patch_sweep(model, clean, corrupted, metric, over="heads").effects   # layer × head, at all positions together

A copy of the run is computed only where it differs: see `inside/patching/patched_runs.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.arguments import with_options
from cutaway.errors import InputError
from cutaway.inside.patching.metrics import Measure, Metric, check_real
from cutaway.inside.patching.patched_runs import CleanRun, Copies
from cutaway.inside.patching.sweep_plan import Inputs, SweepCells, SweepOptions, SweepPlan
from cutaway.inside.progress import Progress, no_progress
from cutaway.model.heads import LanguageModelHead, MaskedLanguageModelHead, TaggingHead
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.model.tap import uncompiled, watch
from cutaway.model.upcast import upcast

POSITIONWISE_HEADS = (LanguageModelHead, MaskedLanguageModelHead, TaggingHead)  # heads that read every position alone


@dataclass(frozen=True, eq=False)
class Sweep:
    """The metric of every cell, patched or ablated (`how`); along an axis that is missing, everything was changed."""

    tap: str  # decoder.*.attention.heads
    how: str  # patch; zero, mean, resample: see `ablate_sweep`
    layers: tuple[int, ...]
    positions: tuple[int, ...] | None  # if each row has its own positions: the first, the second …
    heads: tuple[int, ...] | None
    values: Float[Tensor, "layer *cells batch"]
    clean: Float[Tensor, " batch"]
    corrupted: Float[Tensor, " batch"] | None  # None: places of the clean run were ablated

    @classmethod
    def of(
        cls, plan: SweepPlan, cells: SweepCells, how: str, values: Tensor, clean: Tensor, corrupted: Tensor | None
    ) -> "Sweep":
        """From the metric of every layer and cell."""
        sizes = [len(labels) for labels in (cells.positions, cells.heads) if labels is not None]
        values = values.reshape(len(plan.layers), *sizes, -1)
        return cls(plan.tap("*"), how, plan.layers, cells.positions, cells.heads, values, clean, corrupted)

    @property
    def axes(self) -> tuple[str, ...]:
        there = {"layer": self.layers, "position": self.positions, "head": self.heads}
        return tuple(name for name, labels in there.items() if labels is not None)

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The layers; of the residual stream, whether it is before or after the block."""
        where = {"residual_before": "into block ", "residual_after": "after block "}
        return tuple(where.get(self.tap.rpartition(".")[2], "") + str(layer) for layer in self.layers)

    @property
    def effects(self) -> Float[Tensor, "layer *cells"]:
        """The effect of each cell on the clean answer, averaged over rows: positive if the answer needs it.

        For patches, the share of the answer that is restored, 0 as corrupted and 1 as clean; NaN if these are the same.
        For ablations, by how much the metric falls.
        """
        values, high = self.values.mean(dim=-1), self.clean.mean()
        if self.corrupted is None:
            return high - values
        low = self.corrupted.mean()
        return (values - low) / (high - low)

    def to_dict(self) -> dict[str, Any]:
        return {
            "tap": self.tap,
            "how": self.how,
            "axes": list(self.axes),
            "layers": list(self.layers),
            "layer_names": list(self.layer_names),
            "positions": None if self.positions is None else list(self.positions),
            "heads": None if self.heads is None else list(self.heads),
            "values": self.values.mean(dim=-1).tolist(),
            "effects": self.effects.tolist() if bool(self.effects.isfinite().all()) else None,  # JSON knows no NaN
            "clean": self.clean.mean().item(),
            "corrupted": None if self.corrupted is None else self.corrupted.mean().item(),
        }


@with_options
@torch.no_grad()
def patch_sweep(
    model: Model,
    clean: Inputs,
    corrupted: Inputs,
    metric: Measure,
    *,
    progress: Progress = no_progress,
    options: SweepOptions,
    **more: Any,
) -> Sweep:
    """Patches the clean run into the corrupted one, a cell at a time; a cell equals one patched pass, to rounding.

    >>> patch_sweep(model, ids, other_ids, metric, over="heads").effects.shape

    Further inputs (`real=`, `source_real=`) go to both runs.
    """
    model = uncompiled(model)
    plan = SweepPlan.of(model, clean, corrupted, options)
    with watch(model, *map(plan.tap, plan.layers)) as seen:
        wanted = measure(metric, model(*plan.clean, **more), more.get("real"))
    run = CleanRun.of(model, plan.side, plan.corrupted, more)
    cells = SweepCells.of(plan, seen[plan.tap(plan.layers[0])], options)
    base = measure(metric, run.logits)
    values = measure_cells(run, plan, cells, seen, metric, options.rows, progress)
    return Sweep.of(plan, cells, "patch", values, wanted, base)


def measure_cells(
    run: CleanRun,
    plan: SweepPlan,
    cells: SweepCells,
    source: Mapping[str, Tensor],
    metric: Measure,
    rows: int,
    progress: Progress,
) -> Float[Tensor, "layer cell batch"]:
    """The metric of the run with each cell as in the source."""
    end = _end(metric, run)
    found = measure(metric, run.logits).repeat(len(plan.layers), len(cells.changes), 1)
    portions = list(_portions(len(plan.layers), len(cells.changes), len(run.last), rows))
    blocks = [range(plan.layers[some.start], len(run.calls)) for some, _ in portions]
    done, total = 0, sum(map(len, blocks))
    for (some_layers, some_changes), each in zip(portions, blocks, strict=True):
        copies = Copies(run, plan.over, end)
        for layer in each:
            begins = layer in plan.layers[some_layers]
            changes = cells.changes[some_changes] if begins else []
            copies.advance(layer, changes, source[plan.tap(layer)] if begins else None)
            done += 1
            progress(done, total)
        read = torch.stack(_read(metric, run, copies))
        found[some_layers, some_changes] = read.view(found[some_layers, some_changes].shape)
    return found


def measure(metric: Measure, logits: Tensor, real: Tensor | None = None) -> Float[Tensor, " batch"]:
    """The metric, checked: one number for each row, and padding is not read."""
    check_real(metric, logits, real)
    found = metric(logits)
    if not isinstance(found, Tensor):
        raise InputError(f"the metric gave a {type(found).__name__}: it has to give a tensor, one number for each row")
    if found.shape != logits.shape[:1]:
        raise InputError(f"the metric gave {tuple(found.shape)} for {len(logits)} rows: it has to give one number each")
    return found


def _end(metric: Measure, run: CleanRun) -> Int[Tensor, " batch"]:
    """The last position of each row that the metric can depend on."""
    batch, seq = run.last.shape[:2]
    if run.causal and isinstance(metric, Metric) and run.logits.ndim == 3:
        return metric.positions(batch, seq, run.last.device).amax(dim=1)
    return torch.full((batch,), seq - 1, device=run.last.device)


def _read(metric: Measure, run: CleanRun, copies: Copies) -> list[Float[Tensor, " batch"]]:
    """The metric of each copy; a position-wise head runs only at the positions of the metric."""
    batch, seq = run.last.shape[:2]
    model, n = run.model, len(copies.of_row) // batch
    by_copy: dict[str, Any] = {name: x[copies.of_row] if isinstance(x, Tensor) else x for name, x in run.more.items()}
    if run.side == "encoder" and isinstance(model, EncoderDecoderModel):
        source_real = by_copy.pop("source_real", None)
        hidden = model.decode(run.inputs[1][copies.of_row], memory=copies.hidden(), memory_real=source_real, **by_copy)
        logits = model.head(hidden, by_copy.get("real"))
    elif isinstance(metric, Metric) and isinstance(model.head, POSITIONWISE_HEADS):
        positions = metric.positions(batch, seq, run.last.device)
        logits = model.head(copies.hidden(positions.repeat(n, 1)))
        return [metric.read(upcast(each)).mean(dim=1) for each in logits.unflatten(0, (n, batch))]
    else:
        logits = model.head(copies.hidden(), by_copy.get("real"))
    return [measure(metric, each) for each in logits.unflatten(0, (n, batch))]


def _portions(n_layers: int, n_changes: int, batch: int, rows: int) -> Iterator[tuple[slice, slice]]:
    """Layers and changes that are computed side by side: as many layers as possible, since they share a pass."""
    some_layers = max(1, min(n_layers, rows // batch))
    some_changes = max(1, rows // (batch * some_layers))
    for layer in range(0, n_layers, some_layers):
        for change in range(0, n_changes, some_changes):
            yield slice(layer, layer + some_layers), slice(change, change + some_changes)
