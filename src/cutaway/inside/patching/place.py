"""A place in the model: a tap, and which of its heads and positions.

Place("decoder.3.residual_after", positions=5)       a token's stream
Place("decoder.3.attention.heads", heads=(2, 7))     the output of two heads, everywhere
Place("decoder.*.attention.pattern", positions=-1)   where the last query of every block looks
Place.of("decoder.3.attention.7")                    a head by its short name
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

import torch
from torch import Tensor

from cutaway.errors import InputError

PER_HEAD = ("query", "key", "value", "scores", "pattern", "heads")  # batch head position …
Which = int | Sequence[int] | None


@dataclass(frozen=True, eq=False)
class Place:
    """A tap, with some or all (None) of its heads and positions.

    >>> Place("decoder.0.attention.heads", heads=1, positions=-1)

    Positions count from 0, or from the end; those of scores and patterns are the queries'. Numbers are for all rows; a
    tensor has each row's own: one (batch: `last_real(real)`), or several (batch n)."""

    tap: str
    heads: Which = None
    positions: Which | slice | Tensor = None

    @classmethod
    def of(cls, name: str, positions: Which | slice | Tensor = None) -> "Place":
        """`decoder.3.attention.7` and `decoder.3.cross.7` are heads; anything else is a tap."""
        head = re.fullmatch(r"(.+\.(?:attention|cross))\.(\d+)", name)
        return cls(name, None, positions) if head is None else cls(f"{head[1]}.heads", int(head[2]), positions)

    def taps(self, names: Mapping[str, str]) -> list[str]:
        """The taps that match."""
        matching = [name for name in names if fnmatchcase(name, self.tap)]
        if not matching:
            raise InputError(f"no tap matches {self.tap!r}: tap_names(model) lists all {len(names)}")
        return matching


def as_places(places: Iterable[Place | str] | Place | str) -> list[Place]:
    """A list of places, from one or several places or names."""
    several = [places] if isinstance(places, Place | str) else places
    return [Place.of(place) if isinstance(place, str) else place for place in several]


class Axes(NamedTuple):
    head: int | None
    position: int


def axes_of(tap: str, value: Tensor) -> Axes:
    """The axes of heads and positions in the value of a tap."""
    if tap.rpartition(".")[2] in PER_HEAD:
        return Axes(1, 2)
    if value.ndim == 4:  # rotary angles, a relative bias
        return Axes(None, 2)
    return Axes(None, max(value.ndim - 2, 0))


def insert_at(tap: str, value: Tensor, place: Place, new: Tensor) -> Tensor:
    """The value, with that of `new` at the place."""
    where = mask_of(tap, value, place)
    if where is None:
        return new
    return torch.where(where, new, value)


def mask_of(tap: str, value: Tensor, place: Place) -> Tensor | None:
    """True at the place, in a shape that broadcasts to the value; None means everywhere."""
    axes = axes_of(tap, value)
    where = None
    if place.heads is not None:
        if axes.head is None:
            raise InputError(
                f"heads={place.heads} of {tap!r}, which has no heads: choose one of …{', …'.join(PER_HEAD)}"
            )
        where = _marked(tap, "head", place.heads, value, axes.head)
    if place.positions is not None:
        if value.ndim < 3:
            raise InputError(f"positions={place.positions} of {tap!r}, which has none: leave them out")
        there = _marked(tap, "position", place.positions, value, axes.position)
        where = there if where is None else where & there
    return where


def _marked(tap: str, what: str, which: Which | slice | Tensor, value: Tensor, axis: int) -> Tensor:
    n = value.shape[axis]
    if isinstance(which, slice):
        which = list(range(n))[which]
    chosen = torch.as_tensor(which, device=value.device)
    if what == "position" and isinstance(which, Tensor) and chosen.ndim == 1:
        chosen = chosen[:, None]
    own_rows = chosen.ndim == 2
    chosen = chosen.reshape(len(chosen) if own_rows else 1, -1)
    if own_rows and len(chosen) != len(value):
        raise InputError(f"positions of {tap!r} for {len(chosen)} rows in a batch of {len(value)}")
    outside = chosen[(chosen < -n) | (chosen >= n)]
    if outside.numel():
        raise InputError(f"{what} {int(outside[0])} of {tap!r}, which has {n}: the last is {n - 1}")
    mask = torch.zeros(len(chosen), n, dtype=torch.bool, device=value.device)
    mask.scatter_(1, chosen.long() % n, True)
    shape = [1] * value.ndim
    shape[0], shape[axis] = mask.shape
    return mask.view(shape)
