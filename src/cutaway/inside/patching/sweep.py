"""Where does it matter? Every layer, position and head patched in turn, all of them in a few passes.

`clean` and `corrupted` are two inputs of one shape ("Mary and John … John gave it to", "… Mary gave it to"). Each cell
of a sweep is the corrupted run with one place as in the clean run; the metric says how much of the clean answer is
back: 0 as corrupted, 1 as clean. (Causal tracing: Meng et al. 2022; activation patching: Heimersheim & Nanda 2024.)

    found = sweep(model, clean, corrupted, LogitDifference(mary, john))
    found.effects      # layer × position
    sweep(model, clean, corrupted, metric, over="heads").effects   # layer × head, at all positions together

A copy of the run is computed only where it differs: see `inside/patching/patched_runs.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.arguments import checked
from cutaway.errors import InputError
from cutaway.inside.patching.metrics import Measure, Metric, check_real
from cutaway.inside.patching.patched_runs import Change, CleanRun, Copies
from cutaway.inside.patching.place import axes_of
from cutaway.inside.progress import Progress, no_progress
from cutaway.inside.residual.decompose import check_blocks, check_eval_mode
from cutaway.model.heads import LanguageModelHead, MaskedLanguageModelHead, TaggingHead
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.model.tap import tap_names, uncompiled, watch, watching
from cutaway.model.upcast import upcast

OVER = {
    "residual": "residual_before",
    "heads": "attention.heads",
    "attention": "attention.output",
    "feed_forward": "feed_forward.output",
    "cross": "cross.output",
    "cross_heads": "cross.heads",
}
POSITIONWISE_HEADS = (LanguageModelHead, MaskedLanguageModelHead, TaggingHead)  # heads that read every position alone
Inputs = Tensor | Sequence[Tensor]
Which = bool | Sequence[int] | Int[Tensor, "..."] | None  # a tensor: each row's own


@dataclass(frozen=True, eq=False)
class Sweep:
    """The metric of every cell, patched or taken away (`how`); an axis that is not there was changed as a whole."""

    tap: str  # decoder.*.attention.heads
    how: str  # patch; zero, mean, resample: see `ablate_sweep`
    layers: tuple[int, ...]
    positions: tuple[int, ...] | None  # of rows with positions of their own: the first, the second …
    heads: tuple[int, ...] | None
    values: Float[Tensor, "layer *cells batch"]
    clean: Float[Tensor, " batch"]
    corrupted: Float[Tensor, " batch"] | None  # None: places were taken away from the clean run

    @property
    def axes(self) -> tuple[str, ...]:
        there = {"layer": self.layers, "position": self.positions, "head": self.heads}
        return tuple(name for name, labels in there.items() if labels is not None)

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Where each layer's place is: a stream runs into a block and out of it."""
        where = {"residual_before": "into block ", "residual_after": "after block "}
        return tuple(where.get(self.tap.rpartition(".")[2], "") + str(layer) for layer in self.layers)

    @property
    def effects(self) -> Float[Tensor, "layer *cells"]:
        """What the clean answer owes to each cell, the mean over the rows: above 0, it is needed.

        Patched: the share of it that is back, 0 as corrupted and 1 as clean; NaN where these are the same. Taken away:
        by how much the metric falls, in its own units.
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


@checked
@torch.no_grad()
def patch_sweep(
    model: Model,
    clean: Inputs,
    corrupted: Inputs,
    metric: Measure,
    *,
    over: str = "residual",
    side: str | None = None,
    layers: Sequence[int] | None = None,
    positions: Which = None,
    heads: bool | Sequence[int] | None = None,
    rows: int = 256,
    progress: Progress = no_progress,
    **more: Any,
) -> Sweep:
    """Patches the clean run into the corrupted one, a cell at a time; a cell equals one patched pass, to rounding.

    `over` is residual, heads, attention, feed_forward, cross, cross_heads, or a tap of a block (attention.value);
    `side` is the decoder, where there is one, or the encoder. `positions` are swept one by one (True: all; a tensor:
    each row's own, one or (batch n)), or patched together (False); so are `heads`. Left out, what has heads is swept
    over heads, and what has none over positions. `rows` bounds memory: so many rows are computed side by side, or one
    cell. What is left over (`real=`, `source_real=`) is handed to both runs.
    """
    model = uncompiled(model)
    plan = SweepPlan.of(model, clean, corrupted, over, side, layers)
    with watch(model, *map(plan.tap, plan.layers)) as seen:
        wanted = measure(metric, model(*plan.clean, **more), more.get("real"))
    run = CleanRun.of(model, plan.side, plan.corrupted, more)
    cells = SweepCells.of(plan, seen[plan.tap(plan.layers[0])], positions, heads)
    base = measure(metric, run.logits)
    return cells.sweep(plan, "patch", measure_cells(run, plan, cells, seen, metric, rows, progress), wanted, base)


def measure_cells(
    run: CleanRun,
    plan: "SweepPlan",
    cells: "SweepCells",
    source: Mapping[str, Tensor],
    metric: Measure,
    rows: int,
    progress: Progress,
) -> Float[Tensor, "layer cell batch"]:
    """The metric of the run with each cell as the source has it."""
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


@dataclass(frozen=True)
class SweepPlan:
    """What is patched into what: checked, and with its defaults."""

    side: str
    over: str
    layers: tuple[int, ...]
    clean: tuple[Tensor, ...]
    corrupted: tuple[Tensor, ...]

    def tap(self, layer: int | str) -> str:
        return f"{self.side}.{layer}.{self.over}"

    @classmethod
    def of(
        cls,
        model: Model,
        clean: Inputs,
        corrupted: Inputs,
        over: str,
        side: str | None,
        layers: Sequence[int] | None,
    ) -> "SweepPlan":
        check_eval_mode(model)
        check_blocks(model)
        if watching(model):
            raise InputError("a sweep inside a watch or an edit of the same model: end that first")
        sides = [name for name in ("decoder", "encoder") if hasattr(model, name)]
        side = sides[0] if side is None else side
        if side not in sides:
            raise InputError(f"side={side!r}: this model has {' and '.join(sides)}")
        n = len(getattr(model, side))
        chosen = tuple(range(n) if layers is None else sorted({range(n)[layer] for layer in layers if -n <= layer < n}))
        if not chosen or (layers is not None and len(chosen) != len(set(layers))):
            raise InputError(f"layers={layers}: the {side} has layers 0…{n - 1}")
        tap = OVER.get(over, over)
        if f"{side}.0.{tap}" not in tap_names(model):
            inner = [name.removeprefix(f"{side}.0.") for name in tap_names(model) if name.startswith(f"{side}.0.")]
            known = [name for name, its in OVER.items() if its in inner]
            raise InputError(
                f"over={over!r}: the {side} of this model has {', '.join(known)}; a tap of its blocks will do, too: "
                f"{', '.join(inner)}"
            )
        first, second = ((given,) if isinstance(given, Tensor) else tuple(given) for given in (clean, corrupted))
        check_same_inputs("clean", first, "corrupted", second)
        for one, other in zip(first, second, strict=True):
            if one.shape != other.shape:
                raise InputError(
                    f"clean is {tuple(one.shape)} and corrupted {tuple(other.shape)}: both need rows of one length, "
                    "to compare them position for position"
                )
        return cls(side, tap, chosen, first, second)


@dataclass(frozen=True)
class SweepCells:
    """What is changed in a layer, cell by cell: positions × heads."""

    positions: tuple[int, ...] | None
    heads: tuple[int, ...] | None
    changes: list[Change]

    @classmethod
    def of(cls, plan: SweepPlan, value: Tensor, positions: Which, heads: bool | Sequence[int] | None) -> "SweepCells":
        axes = axes_of(plan.over, value)
        if heads is None:
            heads = axes.head is not None
        if axes.head is None and heads is not False:
            raise InputError(f"heads={heads}: {plan.over!r} has none")
        if positions is None:
            positions = heads is False
        if isinstance(positions, Tensor) and positions.ndim == 1:
            positions = positions[:, None]
        own = _masks("positions", positions, value, axes.position)
        mine = None if heads is False else _labels("heads", heads, value.shape[axes.head or 0])
        changes = [
            Change(None if own is None else own[:, number], head)
            for number, head in product(range(1 if own is None else own.shape[1]), mine or (None,))
        ]
        labels = positions if not isinstance(positions, Tensor) else range(positions.shape[1])
        n = value.shape[axes.position]
        return cls(None if own is None else _labels("positions", labels, n), mine, changes)

    def sweep(self, plan: SweepPlan, how: str, values: Tensor, clean: Tensor, corrupted: Tensor | None) -> Sweep:
        sizes = [len(labels) for labels in (self.positions, self.heads) if labels is not None]
        values = values.reshape(len(plan.layers), *sizes, -1)
        return Sweep(plan.tap("*"), how, plan.layers, self.positions, self.heads, values, clean, corrupted)


def _labels(what: str, which: bool | Sequence[int], n: int) -> tuple[int, ...]:
    chosen = range(n) if which is True else which
    assert not isinstance(chosen, bool)
    if not len(chosen) or min(chosen) < -n or max(chosen) >= n:
        raise InputError(f"{what}={list(chosen)}: there are 0…{n - 1}")
    return tuple(number % n for number in chosen)


def _masks(what: str, which: Which, value: Tensor, axis: int) -> Tensor | None:
    """For each row and each position that is swept: where it stands (batch n position)."""
    if which is False:
        return None
    batch, n = len(value), value.shape[axis]
    if isinstance(which, Tensor):
        if which.ndim != 2 or len(which) != batch or int(which.min()) < -n or int(which.max()) >= n:
            raise InputError(
                f"{what} of shape {tuple(which.shape)} for {batch} rows of {n}: (batch n), within 0…{n - 1}"
            )
        chosen = which.to(value.device) % n
    else:
        assert which is not None
        chosen = torch.tensor(_labels(what, which, n), device=value.device).expand(batch, -1)
    return chosen[..., None] == torch.arange(n, device=value.device)


def check_same_inputs(name: str, one: Sequence[Tensor], other_name: str, other: Sequence[Tensor]) -> None:
    if len(one) != len(other):
        raise InputError(
            f"{name}: {len(one)} tensors, {other_name}: {len(other)}: both need those that the model reads"
        )


def measure(metric: Measure, logits: Tensor, real: Tensor | None = None) -> Float[Tensor, " batch"]:
    """One number for each row, or a complaint; also where it reads what is not `real`."""
    check_real(metric, logits, real)
    found = metric(logits)
    if not isinstance(found, Tensor):
        raise InputError(f"the metric gave a {type(found).__name__}: it has to give a tensor, one number for each row")
    if found.shape != logits.shape[:1]:
        raise InputError(f"the metric gave {tuple(found.shape)} for {len(logits)} rows: it has to give one number each")
    return found


def _end(metric: Measure, run: CleanRun) -> Int[Tensor, " batch"]:
    """The last position that is asked about, of each row; all of them where whatever is asked sees everything."""
    batch, seq = run.last.shape[:2]
    if run.causal and isinstance(metric, Metric) and run.logits.ndim == 3:
        return metric.positions(batch, seq, run.last.device).amax(dim=1)
    return torch.full((batch,), seq - 1, device=run.last.device)


def _read(metric: Measure, run: CleanRun, copies: Copies) -> list[Float[Tensor, " batch"]]:
    """The metric of each copy; the head reads only what the metric asks for, where it reads positions alone."""
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
    """Layers and changes that are computed side by side: as many layers as there is room for, as they share a pass."""
    some_layers = max(1, min(n_layers, rows // batch))
    some_changes = max(1, rows // (batch * some_layers))
    for layer in range(0, n_layers, some_layers):
        for change in range(0, n_changes, some_changes):
            yield slice(layer, layer + some_layers), slice(change, change + some_changes)
