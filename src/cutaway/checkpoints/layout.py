"""How somebody else's tensors correspond to ours. One rule serves both ways: it fills ours, and gives theirs back.

A layout is a dictionary from our names to rules. Most rules say that theirs is a view of ours (the same, transposed,
a slice of rows), so that reading copies straight into place and writing needs no second definition.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from cutaway.checkpoints.tensors import ALIGNMENT
from cutaway.checkpoints.weight_source import TensorSource
from cutaway.errors import CheckpointError
from cutaway.model.kernels.int8 import Int8Linear
from cutaway.model.model import Model


class LayoutRule(ABC):
    """One of our tensors, in terms of theirs."""

    @abstractmethod
    def names(self) -> Iterator[str]:
        """Their names."""

    @abstractmethod
    def renamed(self, new: Callable[[str], str]) -> "LayoutRule":
        """The same rule for other names."""

    @abstractmethod
    def fill(self, source: TensorSource, ours: Tensor) -> None:
        """Reads theirs into ours, which is allocated."""

    @abstractmethod
    def give(self, ours: Tensor) -> dict[str, Tensor]:
        """Theirs, made from ours."""


@dataclass(frozen=True)
class Same(LayoutRule):
    """The same numbers in the same order."""

    name: str

    def names(self) -> Iterator[str]:
        yield self.name

    def renamed(self, new: Callable[[str], str]) -> "Same":
        return replace(self, name=new(self.name))

    def view(self, ours: Tensor) -> Tensor:
        return ours

    def fill(self, source: TensorSource, ours: Tensor) -> None:
        source.copy_into(self.name, self.view(ours))

    def give(self, ours: Tensor) -> dict[str, Tensor]:
        return {self.name: self.view(ours)}


@dataclass(frozen=True)
class Transposed(Same):
    """Theirs maps rows to columns where ours maps columns to rows."""

    def view(self, ours: Tensor) -> Tensor:
        return ours.t()


@dataclass(frozen=True)
class Shaped(Same):
    """The same numbers under another shape."""

    shape: tuple[int, ...]

    def view(self, ours: Tensor) -> Tensor:
        return ours.view(self.shape)


@dataclass(frozen=True)
class Joined(LayoutRule):
    """Several of theirs, one below the other: query, key and value are one matrix here."""

    parts: Sequence[LayoutRule]
    heights: Sequence[int]

    def names(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.names()

    def renamed(self, new: Callable[[str], str]) -> "Joined":
        return replace(self, parts=[part.renamed(new) for part in self.parts])

    def fill(self, source: TensorSource, ours: Tensor) -> None:
        for part, rows in zip(self.parts, ours.split(list(self.heights)), strict=True):
            part.fill(source, rows)

    def give(self, ours: Tensor) -> dict[str, Tensor]:
        pieces = zip(self.parts, ours.split(list(self.heights)), strict=True)
        return {name: tensor for part, rows in pieces for name, tensor in part.give(rows).items()}


@dataclass(frozen=True)
class RowsAfter(Same):
    """Ours without their first rows, which stand for positions that no token has."""

    skipped: int

    def fill(self, source: TensorSource, ours: Tensor) -> None:
        theirs = source.read(self.name)
        if len(theirs) != len(ours) + self.skipped:
            raise CheckpointError(f"{self.name!r} has {len(theirs)} rows, but {len(ours)} + {self.skipped} are wanted")
        ours.copy_(theirs[self.skipped :])

    def give(self, ours: Tensor) -> dict[str, Tensor]:
        return {self.name: torch.cat([ours.new_zeros(self.skipped, *ours.shape[1:]), ours])}


@dataclass(frozen=True)
class Turned(Same):
    """Rotary rows whose pairs are neighbours (0 1, 2 3, …), where ours are half a head apart."""

    n_heads: int

    def fill(self, source: TensorSource, ours: Tensor) -> None:
        theirs = source.read(self.name)
        if theirs.shape != ours.shape:
            raise CheckpointError(f"{self.name!r} has shape {tuple(theirs.shape)}, but {tuple(ours.shape)} is wanted")
        ours.copy_(theirs.unflatten(0, (self.n_heads, -1, 2)).transpose(1, 2).flatten(0, 2))

    def give(self, ours: Tensor) -> dict[str, Tensor]:
        return {self.name: ours.unflatten(0, (self.n_heads, 2, -1)).transpose(1, 2).flatten(0, 2)}


@dataclass(frozen=True)
class Reordered(LayoutRule):
    """Theirs counts the rows or columns of ours in another order: `order` names, for each of theirs, ours."""

    rule: LayoutRule
    axis: int
    order: Sequence[int]

    def names(self) -> Iterator[str]:
        return self.rule.names()

    def renamed(self, new: Callable[[str], str]) -> "Reordered":
        return replace(self, rule=self.rule.renamed(new))

    def fill(self, source: TensorSource, ours: Tensor) -> None:
        theirs = torch.empty_like(ours)
        self.rule.fill(source, theirs)
        ours.index_copy_(self.axis, self._index(ours), theirs)

    def give(self, ours: Tensor) -> dict[str, Tensor]:
        return self.rule.give(ours.index_select(self.axis, self._index(ours)))

    def _index(self, ours: Tensor) -> Tensor:
        return torch.tensor(list(self.order), device=ours.device)


@dataclass(frozen=True)
class LayoutTable:
    """Numbers that we compute, and not before a file holds some of the same shape: it costs no more than the file."""

    shape: tuple[int, ...]
    rows: Callable[[], Tensor]

    def check(self, name: str, source: TensorSource) -> None:
        """Stored numbers must be the ones that we compute, as far as their type can tell them apart."""
        if source.shape(name) == self.shape and (kind := source.dtype(name)).is_floating_point:
            coarse = max(1e-4, torch.finfo(kind).eps)
            if torch.allclose(source.read(name).double(), self.rows().double(), atol=coarse):
                return
        raise CheckpointError(f"{source.path}: {name!r} is not the table that this model computes")


@dataclass(frozen=True)
class Layout:
    """All rules of a model, and what a file may hold besides."""

    rules: Mapping[str, LayoutRule]
    copies: Mapping[str, str] = field(default_factory=dict)  # second names for a tensor, such as a tied output
    tables: Mapping[str, LayoutTable] = field(default_factory=dict)
    ignored: Sequence[str] = ()  # endings of names that mean nothing, such as a stored causal mask

    def __or__(self, other: "Layout") -> "Layout":
        ignored = (*self.ignored, *other.ignored)
        return Layout(
            {**self.rules, **other.rules}, {**self.copies, **other.copies}, {**self.tables, **other.tables}, ignored
        )

    def renamed(self, new: Callable[[str], str]) -> "Layout":
        rules = {name: rule.renamed(new) for name, rule in self.rules.items()}
        copies = {new(copy): new(first) for copy, first in self.copies.items()}
        return Layout(rules, copies, {new(name): table for name, table in self.tables.items()}, self.ignored)


def native(model: Model) -> Layout:
    """Our own names."""
    return Layout({name: Same(name) for name, _ in model.named_parameters()})


@torch.no_grad()
def read_weights(
    model: Model, layout: Layout, source: TensorSource, *, dtype: torch.dtype, device: torch.device | str
) -> Model:
    """Gives a bare model its weights: mapped from the file where it holds them as they are, else copied into place.

    A mapped weight that begins elsewhere than memory of torch's own would give other last bits: it is copied too."""
    _check_names(model, layout, source)
    _check_shapes(model, layout, source)
    model.to(dtype)
    for name, bare in list(model.named_parameters()):
        rule, weight = layout.rules[name], None
        if type(rule) is Same and source.dtype(rule.name) == dtype and torch.device(device).type == "cpu":
            weight = source.read(rule.name)
        if weight is None or weight.data_ptr() % ALIGNMENT:
            weight = torch.empty(bare.shape, dtype=dtype, device=device)
            rule.fill(source, weight)
        owner, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(owner), attribute, nn.Parameter(weight))
    for part in model.modules():  # tables that are computed, not stored
        for name, table in list(part._buffers.items()):
            if table is not None and table.is_meta:
                part._buffers[name] = torch.empty(table.shape, dtype=table.dtype, device=device)
    return model.to(device)  # fills the tables


@torch.no_grad()
def give_weights(model: Model, layout: Layout) -> dict[str, Tensor]:
    """Their tensors, made from the model's; second names are left to whoever reads them."""
    if any(isinstance(part, Int8Linear) for part in model.modules()):
        raise CheckpointError("this model's matrices were rounded to 8-bit numbers to run it: save it as it was before")
    ours = dict(model.named_parameters())
    return {name: tensor for own, rule in layout.rules.items() for name, tensor in rule.give(ours[own]).items()}


def _check_names(model: Model, layout: Layout, source: TensorSource) -> None:
    """Every tensor is wanted and every wanted tensor is there, before anything is allocated."""
    ours = {name for name, _ in model.named_parameters()}
    if ours != set(layout.rules):
        odd = sorted(ours ^ set(layout.rules))
        raise CheckpointError(f"the layout and the model disagree on {odd[0]!r}")
    wanted = {name for rule in layout.rules.values() for name in rule.names()}
    found = set(source.names())
    if missing := sorted(wanted - found):
        raise CheckpointError(f"{source.path} lacks {missing[0]!r} and {len(missing) - 1} more of {len(wanted)}")
    for name in sorted(found - wanted):
        if name in layout.copies:
            first = layout.copies[name]
            if not torch.equal(source.read(name), source.read(first)):
                raise CheckpointError(f"{source.path}: {name!r} should repeat {first!r} (tied weights) but differs")
        elif name in layout.tables:
            layout.tables[name].check(name, source)
        elif not name.endswith(tuple(layout.ignored)):
            raise CheckpointError(f"{source.path} holds {name!r}, for which this model has no place")


def _check_shapes(model: Model, layout: Layout, source: TensorSource) -> None:
    """Every tensor has the shape that a rule makes of ours: on the meta device that is asked without any memory."""
    for name, wanted in give_weights(model, layout).items():
        if (shape := source.shape(name)) != tuple(wanted.shape):
            raise CheckpointError(f"{source.path}: {name!r} has shape {shape}, but {tuple(wanted.shape)} is wanted")
        if not source.dtype(name).is_floating_point:
            raise CheckpointError(f"{source.path}: {name!r} holds {source.dtype(name)}, where a weight is wanted")
