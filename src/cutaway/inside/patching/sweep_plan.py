"""What a sweep changes: which places of which layers, cell by cell."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Int
from torch import Tensor

from cutaway.arguments import Options, option
from cutaway.errors import InputError
from cutaway.inside.patching.patched_runs import Change
from cutaway.inside.patching.place import axes_of
from cutaway.inside.residual.decompose import check_blocks, check_eval_mode
from cutaway.model.model import Model
from cutaway.model.tap import tap_names, watching

OVER = {
    "residual": "residual_before",
    "heads": "attention.heads",
    "attention": "attention.output",
    "feed_forward": "feed_forward.output",
    "cross": "cross.output",
    "cross_heads": "cross.heads",
}
Inputs = Tensor | Sequence[Tensor]
Which = bool | Sequence[int] | Int[Tensor, "..."] | None  # a tensor: each row's own


@dataclass(frozen=True, kw_only=True)
class PlaceOptions(Options):
    """Which places are changed, one by one or together."""

    over: str = option(
        "residual",
        "residual, heads, attention, feed_forward, cross, cross_heads, or a tap of a block (attention.value).",
    )
    side: str | None = option(None, "encoder or decoder; the decoder, where there is one, unless given.")
    layers: Sequence[int] | None = option(None, "Only these layers.")
    positions: Which = option(
        None,
        "Change each of these positions by itself (True: all; a tensor: each row's own, one or (batch n)), or all "
        "together (False); by default one by one where there are no heads.",
    )
    heads: bool | Sequence[int] | None = option(
        None, "Change each of these heads by itself (True: all), or all together (False); by default one by one."
    )


@dataclass(frozen=True, kw_only=True)
class SweepOptions(PlaceOptions):
    """Which places are changed, and how much is computed at a time."""

    rows: int = option(
        256, "Number of rows that are computed side by side (at least one cell): it bounds memory.", least=1
    )


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
    def of(cls, model: Model, clean: Inputs, corrupted: Inputs, options: PlaceOptions) -> "SweepPlan":
        over, side, layers = options.over, options.side, options.layers
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
    def of(cls, plan: SweepPlan, value: Tensor, options: PlaceOptions) -> "SweepCells":
        axes, positions, heads = axes_of(plan.over, value), options.positions, options.heads
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
