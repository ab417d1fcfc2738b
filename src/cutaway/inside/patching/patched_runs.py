"""Many changed copies of one run, each computed only where it differs from that run.

A change in block k affects no block before k, and in a decoder no position before its own. So one run is kept
(`CleanRun`), and each copy starts at its own block and position: from block to block, the batch grows by the copies
that start there. Weights are read once for all copies; keys and values of earlier positions are those of the kept run.

The blocks of the model are called as its own pass calls them, with the mask, rotation and memory of the kept run.
Positions that are not computed are left out, as a beam search leaves out finished hypotheses (`Packing`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cutaway.inside.patching.place import axes_of
from cutaway.model.blocks import Block
from cutaway.model.cache import Store
from cutaway.model.decoder import Decoder
from cutaway.model.encoder import Stack
from cutaway.model.finite import check_scores
from cutaway.model.kernels.live_rows import Packing
from cutaway.model.masks import Mask
from cutaway.model.model import Model
from cutaway.model.positions import Rotation
from cutaway.model.tap import edit, watch

PACKED = ("query", "key", "value")  # of self-attention: per head, but still packed
ACROSS = ("cross.key", "cross.value")  # their positions are the source's, and affect every target position


@dataclass(frozen=True, eq=False)
class Call:
    """The arguments with which a pass called one block."""

    x: Float[Tensor, "batch seq d_model"]
    mask: Mask
    more: Mapping[str, Any]
    keys: Float[Tensor, "batch head seq d_head"]
    values: Float[Tensor, "batch head seq d_head"]

    def rows(self, which: Int[Tensor, " rows"], packing: Packing | None) -> dict[str, Any]:
        """The same for a batch of copies; `which` is the row that each was copied from."""
        bias, memory, rotation = (self.more.get(name) for name in ("bias", "memory", "rotation"))
        more: dict[str, Any] = {"mask": _mask(self.mask, which), "bias": _rows(bias, which)}
        if memory is not None:
            more["memory"] = tuple(kept[which] for kept in memory)
            more["memory_mask"] = _mask(self.more["memory_mask"], which)
        if rotation is not None:
            more["rotation"] = Rotation(*(_turned(x, which, packing) for x in (rotation.cos, rotation.sin)))
        if packing is not None:
            kept = (self.keys[which], self.values[which])  # new tensors: the copies write into them
            more["store"] = Store(*kept, packing.places[None], None, packing)
        return more


@dataclass(frozen=True, eq=False)
class CleanRun:
    """A finished pass through one stack, kept so that copies can start at any block."""

    model: Model
    side: str  # encoder or decoder
    calls: Sequence[Call]
    last: Float[Tensor, "batch seq d_model"]  # the output of the last block
    logits: Tensor
    inputs: Sequence[Tensor]
    more: Mapping[str, Any]

    @property
    def stack(self) -> Stack:
        return getattr(self.model, self.side)

    @property
    def causal(self) -> bool:
        return isinstance(self.stack, Decoder)

    @classmethod
    def of(cls, model: Model, side: str, inputs: Sequence[Tensor], more: Mapping[str, Any]) -> "CleanRun":
        stack: Stack = getattr(model, side)
        last = f"{side}.{len(stack) - 1}.residual_after"
        taps = [f"{side}.*.attention.key", f"{side}.*.attention.value", last]
        with _overheard(stack) as heard, watch(model, *taps) as seen:
            logits = model(*inputs, **more)
        check_scores(model, logits)
        calls = [
            Call(x, mask, asked, seen[f"{side}.{layer}.attention.key"], seen[f"{side}.{layer}.attention.value"])
            for layer, ((x, mask), asked) in enumerate(heard)
        ]
        return cls(model, side, calls, seen[last], logits, inputs, more)


@dataclass(frozen=True, eq=False)
class Change:
    """What one set of copies (a row for each row of the run) changes in its block: some of one tap."""

    positions: Bool[Tensor, "batch position"] | None  # None: all
    head: int | None  # None: all


@contextmanager
def _overheard(stack: Stack) -> Iterator[list[tuple[tuple[Any, ...], dict[str, Any]]]]:
    """Records the arguments with which each block is called."""
    heard: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def listen(block: nn.Module, given: tuple[Any, ...], more: dict[str, Any]) -> None:
        heard.append((given, more))

    hooks = [block.register_forward_pre_hook(listen, with_kwargs=True) for block in stack]
    try:
        yield heard
    finally:
        for hook in hooks:
            hook.remove()


class Copies:
    """The copies that have started, on their way through the blocks."""

    def __init__(self, run: CleanRun, tap: str, end: Int[Tensor, " batch"]) -> None:
        """`tap` is the changed one, without side and layer; positions after `end` of a row are not computed."""
        self.run, self.tap, self.end = run, tap, end
        x = run.last
        self.of_row = torch.empty(0, dtype=torch.long, device=x.device)
        self.living = torch.empty(0, x.shape[1], dtype=torch.bool, device=x.device)
        self.x = x.new_empty(0, x.shape[2])  # of all living positions of all copies, side by side

    def advance(self, layer: int, changes: Sequence[Change], source: Tensor | None) -> None:
        """Goes through one block, in which new copies start with changes from the source."""
        call, batch = self.run.calls[layer], len(self.run.last)
        old, old_x = len(self.of_row), len(self.x)
        rows = torch.arange(batch, device=self.x.device).repeat(len(changes))
        fresh = torch.cat([self._living(change) for change in changes]) if changes else self.living[:0]
        begin = call.x[rows[fresh.nonzero()[:, 0]], fresh.nonzero()[:, 1]] if changes else self.x[:0]
        self.of_row, self.living = torch.cat([self.of_row, rows]), torch.cat([self.living, fresh])
        self.x = torch.cat([self.x, begin])
        if not len(self.x):
            return
        packing = Packing.of(self.living)
        x = self.x.view(*self.living.shape, -1) if packing is None else self.x[None]
        changed: Any = nullcontext()
        if changes:
            assert source is not None
            replace = _Replace(self.tap, changes, source, old, old_x, fresh, packing is not None)
            changed = edit(self.run.model, {f"{self.run.side}.{layer}.{self.tap}": replace})
        block: Block = self.run.stack[layer]
        with changed:
            self.x = block(x, **call.rows(self.of_row, packing)).reshape(-1, x.shape[-1])

    def _living(self, change: Change) -> Bool[Tensor, "batch seq"]:
        """The positions up to `end` at which these copies may differ from their run."""
        batch, seq = self.run.last.shape[:2]
        place = torch.arange(seq, device=self.x.device).expand(batch, seq)
        if not self.run.causal:
            return torch.ones_like(place, dtype=torch.bool)
        living = place <= self.end[:, None]
        if change.positions is not None and self.tap not in ACROSS:
            living = living & (change.positions.int().cummax(dim=1).values > 0)
        return living

    def hidden(self, positions: Int[Tensor, "copies n"] | None = None) -> Float[Tensor, "copies n d_model"]:
        """The output of the stack for each copy, at some positions or at all."""
        run = self.run
        seq = run.last.shape[1]
        here = torch.arange(seq, device=self.x.device).expand(len(self.of_row), seq) if positions is None else positions
        copy = torch.arange(len(here), device=self.x.device)[:, None]
        if len(self.x):
            token = (self.living.flatten().cumsum(dim=0) - 1).clamp(min=0).view_as(self.living)
            own = self.x[token[copy, here]]
            kept = run.last[self.of_row[:, None], here]
            x = torch.where(self.living[copy, here][..., None], own, kept)
        else:
            x = run.last[self.of_row[:, None], here]
        return x if run.stack.final_norm is None else run.stack.final_norm(x)


class _Replace:
    """The edit of a tap that changes the newest copies; the tap's value may be packed."""

    def __init__(
        self,
        tap: str,
        changes: Sequence[Change],
        source: Tensor,
        old: int,
        old_x: int,
        fresh: Bool[Tensor, "new seq"],
        packed: bool,
    ) -> None:
        self.tap, self.changes, self.source = tap, changes, source
        self.old, self.old_x, self.fresh = old, old_x, fresh
        per_head = axes_of(tap, source).head is not None and tap.rpartition(".")[2] not in PACKED
        self.packed = packed and not per_head and tap not in ACROSS

    def __call__(self, value: Tensor) -> Tensor:
        axes, batch = axes_of(self.tap, self.source), len(self.source)
        source = self.source.repeat(len(self.changes), *[1] * (self.source.ndim - 1))  # new …
        where = self._where(batch, axes.head, axes.position)
        value = value.clone()
        if not self.packed:
            value[self.old :] = torch.where(where, source, value[self.old :])
            return value
        row, place = self.fresh.nonzero().unbind(dim=1)
        first = slice(self.old_x, None)
        if axes.head is None:
            value[0, first] = torch.where(where.expand_as(source)[row, place], source[row, place], value[0, first])
            return value
        source, where = source.transpose(1, 2)[row, place], where.expand_as(source).transpose(1, 2)[row, place]
        here = value[0, :, first].transpose(0, 1)
        value[0, :, first] = torch.where(where, source, here).transpose(0, 1)
        return value

    def _where(self, batch: int, head: int | None, position: int) -> Bool[Tensor, "..."]:
        """True where a new copy is changed, with as many axes as the source."""
        shape = [len(self.changes) * batch] + [1] * (self.source.ndim - 1)
        where = torch.ones(shape, dtype=torch.bool, device=self.source.device)
        if self.changes[0].positions is not None:
            shape[position] = self.source.shape[position]
            where = where & torch.cat([change.positions for change in self.changes]).view(shape)  # type: ignore[misc]
        if self.changes[0].head is not None:
            assert head is not None
            heads = torch.tensor([change.head for change in self.changes], device=self.source.device)
            mine = heads.repeat_interleave(batch)[:, None] == torch.arange(self.source.shape[head], device=heads.device)
            where = where & mine.view(len(mine), -1, *[1] * (self.source.ndim - 2))
        return where


def _rows(x: Tensor | None, which: Int[Tensor, " rows"]) -> Tensor | None:
    """Rows of a batch; a batch of one is broadcast."""
    return x if x is None or len(x) == 1 else x[which]


def _mask(mask: Mask, which: Int[Tensor, " rows"]) -> Mask:
    return Mask(_rows(mask.may_look, which), mask.causal, _rows(mask.blind, which), mask.none_blind)


def _turned(x: Tensor, which: Int[Tensor, " rows"], packing: Packing | None) -> Tensor:
    """The angles of a rotation for the positions of each copy, packed if the copies are."""
    if packing is None:
        return _rows(x, which)  # type: ignore[return-value]
    whose = torch.zeros_like(packing.rows) if len(x) == 1 else which[packing.rows]
    return x[whose, 0, packing.places][None, None]
