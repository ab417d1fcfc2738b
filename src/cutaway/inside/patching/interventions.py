"""Interventions: what happens when a value is ablated, or comes from another run.

Watching shows what a value is; only a change shows what it does. `Ablate` replaces a value by zero, by the mean over
other inputs, or by that of another row; `Patch` replaces it by the value of another run.

    clean = record_activations(model, ids, places=["decoder.*.attention.heads"])
    with intervene(model, [Patch(Place("decoder.3.attention.heads", heads=7), clean)]):
        logits = model(other_ids)

Changes of the same tap are made in the given order. (Vig et al. 2020; Meng et al. 2022, section 2.)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.arguments import checked
from cutaway.errors import InputError
from cutaway.inside.patching.place import Place, insert_at
from cutaway.model.decoder import Decoder
from cutaway.model.encoder import Stack
from cutaway.model.model import Model
from cutaway.model.tap import edit, tap_names, uncompiled

Source = Tensor | Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Intervention(ABC):
    """A change of the value at one place."""

    place: Place

    @abstractmethod
    def change(self, tap: str, value: Tensor) -> Tensor:
        """The new value of the tap, of which only what is at the place is used."""


@dataclass(frozen=True, eq=False)
class Patch(Intervention):
    """Replaces the value by that of `source`: a tensor of the same shape (or of one row), or recorded activations.

    >>> clean = record_activations(model, ids, places="decoder.0.attention.heads")
    >>> with intervene(model, Patch(Place.of("decoder.0.attention.1"), clean)): model(other_ids)
    """

    source: Source

    def change(self, tap: str, value: Tensor) -> Tensor:
        return fit_source(tap, self.source, value)


@dataclass(frozen=True, eq=False)
class Ablate(Intervention):
    """Replaces the value by zero, by a mean (`source`: see `mean_activations`), or by that of another row (`resample`).

    >>> with intervene(model, Ablate(Place.of("decoder.0.attention.1"))): model(ids)

    `resample` takes another row of the same pass, or, with a `source` (`record_activations` of other inputs), a row of
    that; `seed` draws the rows, the same ones for all places. Rows with different padding (`real=`) are refused, unless
    there is a `source` without padding.
    """

    how: str = "zero"
    source: Source | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.how not in ("zero", "mean", "resample"):
            raise InputError(f"how={self.how!r} is not one of zero, mean, resample")
        if self.how == "mean" and self.source is None:
            raise InputError("how='mean' needs a source: source=mean_activations(model, ids, places=…)")
        if self.how == "zero" and self.source is not None:
            raise InputError("how='zero' needs no source: leave it out, or choose mean or resample")

    def change(self, tap: str, value: Tensor) -> Tensor:
        if self.how == "zero":
            return torch.zeros_like(value)
        if self.how == "mean":
            assert self.source is not None
            return fit_source(tap, self.source, value)
        pool = value if self.source is None else from_source(tap, self.source)
        donors = self._donors(tap, len(value), len(pool))
        return fit_source(tap, pool[donors.to(pool.device)], value)

    def _donors(self, tap: str, rows: int, pool: int) -> Tensor:
        draw = torch.Generator().manual_seed(self.seed)
        if self.source is not None:
            return torch.randint(pool, (rows,), generator=draw)
        if rows < 2:
            raise InputError(f"resampling {tap!r} among the rows of a pass needs at least 2: give a source")
        order = torch.randperm(rows, generator=draw)  # each row takes from the next in a circle, so none from itself
        donors = torch.empty_like(order)
        donors[order] = order.roll(-1)
        return donors


@dataclass(frozen=True, eq=False)
class Add(Intervention):
    """Adds `strength` times a vector.

    >>> vector = torch.randn(model.config.d_model)
    >>> with intervene(model, Add(Place("decoder.0.residual_after"), vector)): model(ids)
    """

    vector: Source
    strength: float = 1.0

    def change(self, tap: str, value: Tensor) -> Tensor:
        return value + self.strength * fit_source(tap, self.vector, value)


def from_source(tap: str, source: Source) -> Tensor:
    if isinstance(source, Tensor):
        return source
    if tap not in source:
        raise InputError(f"the source has no {tap!r}: it has {', '.join(source) or 'nothing'}")
    return source[tap]


def fit_source(tap: str, source: Source, value: Tensor) -> Tensor:
    """The value of the source for a tap, broadcast to the shape of the value."""
    found = from_source(tap, source).to(value.device, value.dtype)
    try:
        return found.expand_as(value)
    except RuntimeError:
        raise InputError(
            f"the source of {tap!r} is {tuple(found.shape)}, this pass {tuple(value.shape)}: both need rows of the "
            "same length (and with a cache a pass reads only the new tokens)"
        ) from None


@checked
@contextmanager
def intervene(model: Model, interventions: Sequence[Intervention] | Intervention) -> Iterator[None]:
    """Makes every pass inside the context with these changes; several may be of the same tap.

    >>> with intervene(model, [Ablate(Place("decoder.0.feed_forward.output"))]): model(ids)

    A place without positions is changed in every pass; during generation, at every token that is read or generated.
    Positions are those of a pass that reads whole rows; with a KV cache they are refused.
    """
    changes = [interventions] if isinstance(interventions, Intervention) else interventions
    by_tap: dict[str, list[Intervention]] = {}
    names = tap_names(model)
    for change in changes:
        for tap in change.place.taps(names):
            by_tap.setdefault(tap, []).append(change)
    with ExitStack() as stack:
        if any(change.place.positions is not None for change in changes):
            stack.enter_context(_no_cache(model, changes))
        if any(isinstance(each, Ablate) and each.how == "resample" and each.source is None for each in changes):
            stack.enter_context(_no_padding(model))
        if by_tap:
            stack.enter_context(edit(model, {tap: _merged(tap, its) for tap, its in by_tap.items()}))
        yield


def _merged(tap: str, changes: Sequence[Intervention]) -> Callable[[Tensor], Tensor]:
    def replace(value: Tensor) -> Tensor:
        for change in changes:
            value = insert_at(tap, value, change.place, change.change(tap, value))
        return value

    return replace


@contextmanager
def _no_cache(model: nn.Module, changes: Sequence[Intervention]) -> Iterator[None]:
    """Refuses a pass with a KV cache, whose rows have only the new tokens, so that positions mean something else."""
    place = next(change.place for change in changes if change.place.positions is not None)

    def look(module: nn.Module, given: tuple[Any, ...]) -> None:
        if given[1].stores:
            raise InputError(
                f"positions={place.positions} of {place.tap!r} in a pass with a cache, which reads only new tokens: "
                "leave positions out to change every token, or call the model without a cache"
            )

    hooks = [part.register_forward_pre_hook(look) for part in uncompiled(model).modules() if isinstance(part, Decoder)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _no_padding(model: nn.Module) -> Iterator[None]:
    """Refuses a pass with different padding in rows that take values from each other."""

    def look(own: str, block: nn.Module, given: tuple[Any, ...], more: dict[str, Any]) -> None:
        mine = given[1] if len(given) > 1 else more.get("mask")
        for name, mask in ((own, mine), ("source_real", more.get("memory_mask"))):
            may_look = None if mask is None else mask.may_look
            if may_look is not None and bool((may_look != may_look[:1]).any()):
                raise InputError(
                    f"resampling among rows of which {name}= differs would put padding into tokens: "
                    "use source=record_activations(…) of rows without padding"
                )

    stacks = [part for part in uncompiled(model).modules() if isinstance(part, Stack) and len(part)]
    of = ["source_real" if len(stacks) > 1 and not isinstance(stack, Decoder) else "real" for stack in stacks]
    hooks = [
        stack[0].register_forward_pre_hook(partial(look, own), with_kwargs=True)
        for own, stack in zip(of, stacks, strict=True)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
