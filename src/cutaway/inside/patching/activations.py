"""The values of a run, and their means over many inputs: what `Patch` and `Ablate` put in the place of others."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from cutaway.arguments import checked
from cutaway.errors import InputError
from cutaway.inside.patching.place import Place, as_places, axes_of, mask_of
from cutaway.inside.progress import Progress, counted_progress, no_progress
from cutaway.inside.residual.decompose import check_eval_mode
from cutaway.model.model import Model
from cutaway.model.tap import Seen, watch
from cutaway.model.upcast import upcast


@checked
def record_activations(model: Model, *inputs: Tensor, places: Sequence[Place | str] | Place | str, **more: Any) -> Seen:
    """The values of a run at these places, by tap, for `Patch` and `Ablate`. Each tap is kept whole.

    >>> record_activations(model, ids, places="decoder.*.attention.heads").keys()

    A tap that is passed twice (the rotary angles that an encoder and a decoder share) is left out.
    """
    check_eval_mode(model)
    names = sorted({place.tap for place in as_places(places)})
    with torch.no_grad(), watch(model, *names, keep="all") as seen:
        model(*inputs, **more)
    return Seen({tap: values[0] for tap, values in seen.items() if len(values) == 1})


@checked
def mean_activations(
    model: Model,
    *inputs: Tensor,
    places: Sequence[Place | str] | Place | str,
    per_position: bool = False,
    rows: int = 64,
    progress: Progress = no_progress,
    **more: Any,
) -> dict[str, Tensor]:
    """The mean of each tap over these inputs: over rows and positions, or over rows for each position.

    >>> mean_activations(model, ids, places="decoder.0.residual_after")

    Padding is left out (`real=`, `source_real=`), and so are positions other than those of a `Place` that has some.
    Sums and means are in single precision at least; `rows` are read at a time.
    """
    if rows < 1 or not inputs:
        raise InputError(f"rows={rows} of {len(inputs)} inputs: at least one row is read at a time")
    chosen = as_places(places)
    sums: dict[str, Tensor] = {}
    counts: dict[str, Tensor] = {}
    for start in counted_progress(range(0, len(inputs[0]), rows), progress):
        some = slice(start, start + rows)
        part = {name: x[some] if isinstance(x, Tensor) else x for name, x in more.items()}
        for tap, value in record_activations(model, *(x[some] for x in inputs), places=chosen, **part).items():
            if not per_position and tap.endswith((".scores", ".pattern")):
                raise InputError(f"{tap!r} has no mean over positions, whose keys differ: per_position=True")
            positions = _one_choice(tap, chosen)
            own = positions[some] if isinstance(positions, Tensor) and positions.ndim else positions
            weight = _weight(tap, value, own, real_tokens_of(model, tap, part))
            axes = (0,) if per_position or value.ndim == 2 else (0, axes_of(tap, value).position)
            total, n = (upcast(value) * weight).sum(axes, keepdim=True), weight.sum(axes, keepdim=True)
            sums[tap] = sums[tap] + total if tap in sums else total
            counts[tap] = counts[tap] + n if tap in counts else n
    return {tap: total / counts[tap].clamp(min=1) for tap, total in sums.items()}


def _one_choice(tap: str, places: Sequence[Place]) -> Any:
    """The positions of a tap: places with the same tap must agree, since a tap has one mean."""
    first, *others = (place.positions for place in places if fnmatchcase(tap, place.tap))
    for other in others:
        if isinstance(first, Tensor) and isinstance(other, Tensor):
            agree = torch.equal(first, other)
        else:
            agree = not isinstance(first, Tensor) and not isinstance(other, Tensor) and first == other
        if not agree:
            raise InputError(
                f"two places of {tap!r}, with positions={first} and positions={other}: a tap has one mean, so take "
                "them one after the other"
            )
    return first


def _weight(tap: str, value: Tensor, positions: Any, real: Bool[Tensor, "batch seq"] | None) -> Tensor:
    """True for real tokens at chosen positions; with as many axes as the value."""
    weight = torch.ones(*value.shape[:-1], 1, dtype=torch.bool, device=value.device)
    if real is not None and value.ndim > 2:
        shape = [1] * value.ndim
        shape[0], shape[axes_of(tap, value).position] = real.shape
        weight = weight * real.view(shape)
    where = mask_of(tap, value, Place(tap, None, positions))
    return weight if where is None else weight * where


def real_tokens_of(model: Model, tap: str, more: Mapping[str, Any]) -> Tensor | None:
    """The mask of real tokens on the side (source or target) that a tap belongs to."""
    across = any(fnmatchcase(tap, pattern) for pattern in ("encoder.*", "source_*", "*.cross.key", "*.cross.value"))
    return more.get("source_real" if across and hasattr(model, "encode") else "real")
