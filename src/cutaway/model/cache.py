"""What a decoder has read so far: the keys and values of every block, so that a new token costs one step.

The cache belongs to the caller and is passed in: `model(ids, cache=cache)` reads the new tokens and appends them, under
`torch.no_grad()` (otherwise autograd keeps every step alive). All of it is tensors that are allocated once and written
in place, lengths included, so that a captured CUDA graph can replay a step. Rows may have different lengths; padding is
stored as "nothing stands here".
"""

import mmap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import Any, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.errors import InputError
from cutaway.model.kernels import cpu
from cutaway.model.kernels.live_rows import Packing
from cutaway.model.masks import EVERYWHERE, Mask, sliding_window

KeysValues = tuple[Float[Tensor, "sentence n_heads source d_head"], Float[Tensor, "sentence n_heads source d_head"]]
LARGE = 1 << 20  # bytes: of less, it does not matter how they are had
NOTHING = -1  # the position of a slot where nothing stands


@dataclass(frozen=True, eq=False)
class Store:
    """One layer's keys and values, and where this call's tokens go."""

    keys: Float[Tensor, "batch head slot d_head"]
    values: Float[Tensor, "batch head slot d_head"]
    slots: slice | Int[Tensor, "rows seq"]  # the same for all rows, or each row's own
    lengths: Int[Tensor, " batch"] | None  # behind the new tokens; None where some of these are padding
    packing: Packing | None = None  # the new tokens come packed

    def append(
        self, keys: Float[Tensor, "rows head seq d_head"], values: Float[Tensor, "rows head seq d_head"]
    ) -> tuple[Float[Tensor, "batch head slot d_head"], Float[Tensor, "batch head slot d_head"]]:
        """Stores the new keys and values and gives back all that are known."""
        for store, new in ((self.keys, keys), (self.values, values)):
            if isinstance(self.slots, Tensor) and cpu.appends(store, new):
                cpu.append(store, new, self.slots, self.packing)
            elif self.packing is not None and isinstance(self.slots, Tensor):
                store[self.packing.rows, :, self.slots[0]] = new[0].transpose(0, 1).to(store.dtype)
            elif isinstance(self.slots, slice):
                store[:, :, self.slots] = new
            else:
                row = torch.arange(len(store), device=store.device)[:, None]
                store[row, :, self.slots] = new.transpose(1, 2).to(store.dtype)
        return self.keys.to(keys.dtype), self.values.to(values.dtype)


@dataclass(frozen=True, eq=False)
class Step:
    """The tokens of one call: where they stand, what they may look at and, with a cache, each layer's store."""

    positions: Int[Tensor, "#batch seq"]
    key_positions: Int[Tensor, "#batch key"]
    mask: Mask
    stores: Sequence[Store] = ()
    packing: Packing | None = None  # the tokens come packed: only attention needs to know

    @property
    def query_positions(self) -> Int[Tensor, "#batch query"]:
        """Where the queries of each row stand, packed or not."""
        return self.positions if self.packing is None else self.packing.spread(self.positions[0])

    def store(self, layer: int) -> Store | None:
        return self.stores[layer] if self.stores else None


@dataclass(frozen=True, eq=False)
class Cache:
    """Keys and values per layer (batch head slot d_head), and per row what stands in each slot."""

    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    positions: Int[Tensor, "batch slot"]
    lengths: Int[Tensor, " batch"]  # the next free slot of each row
    seen: Int[Tensor, " batch"]  # the real tokens of each row, and so the next position
    cross: Sequence[KeysValues] = ()  # per layer, the encoder output's keys and values
    cross_mask: Mask | None = None

    @classmethod
    def empty(
        cls,
        n_layers: int,
        batch: int,
        max_len: int,
        n_heads: int,
        d_head: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> "Cache":
        def slots() -> list[Tensor]:
            return [zeros((batch, n_heads, max_len, d_head), dtype, device) for _ in range(n_layers)]

        return cls(
            keys=slots(),
            values=slots(),
            positions=torch.full((batch, max_len), NOTHING, device=device),
            lengths=torch.zeros(batch, dtype=torch.long, device=device),
            seen=torch.zeros(batch, dtype=torch.long, device=device),
        )

    @property
    def batch(self) -> int:
        return self.positions.shape[0]

    def deepens(self, n: int) -> int:
        """How many tokens longer the longest text gets when each row reads n."""
        return n

    @property
    def max_len(self) -> int:
        return self.positions.shape[1]

    def step(
        self, ids: Int[Tensor, "batch seq"], real: Bool[Tensor, "batch seq"] | None = None, window: int | None = None
    ) -> Step:
        """Makes room for new tokens at the end of each row. Slots that right padding took are free again at once."""
        batch, n = ids.shape
        if batch != self.batch:
            raise InputError(f"{batch} rows of ids for a cache of {self.batch} rows")
        alike = self._room(n)
        along = torch.arange(n, device=ids.device)[None] if n > 1 else 0
        slots = self.lengths[:, None] + along
        taken: Tensor | int = n
        n_real: Tensor | int = n
        if real is None:
            positions = stored = self.seen[:, None] + along
        else:
            counted = self.seen[:, None] + real.cumsum(dim=1) - 1
            positions, stored = counted.clamp(min=0), counted.masked_fill(~real, NOTHING)
            taken, n_real = ((along + 1) * real).amax(dim=1), real.sum(dim=1)
        self.positions.scatter_(1, slots, stored)
        self.lengths.add_(taken)
        self.seen.add_(n_real)
        here = self.positions[:, None, None, :]
        mask = Mask(here != NOTHING)
        if n > 1 or real is not None:  # a single token comes last
            mask &= Mask(here <= stored[:, None, :, None])
        if window is not None:
            mask &= sliding_window(window, positions, self.positions)
        # without padding every token sees itself; padding sees nothing
        mask = replace(mask, none_blind=True) if real is None else mask.settled(n, self.max_len, ids.device)
        lengths = self.lengths if real is None else None
        return Step(
            positions, self.positions, self._for_kernels(mask), self._stores(slots if alike is None else alike, lengths)
        )

    def _for_kernels(self, mask: Mask) -> Mask:
        """Only a CPU's kernel wants it so; where texts are short, half of its time would go into that."""
        return mask.written_out(self.keys[0].dtype) if mask.may_look is not None and not self.keys[0].is_cuda else mask

    def _stores(self, slots: slice | Tensor, lengths: Tensor | None, packing: Packing | None = None) -> list[Store]:
        kept = zip(self.keys, self.values, strict=True)
        return [Store(keys, values, slots, lengths, packing) for keys, values in kept]

    def first(self, n: int) -> Self:
        """A view of the first n slots: the same memory, less to look at while rows are short."""
        keys, values = [k[:, :, :n] for k in self.keys], [v[:, :, :n] for v in self.values]
        return replace(self, keys=keys, values=values, positions=self.positions[:, :n], **self._more(..., slice(n)))

    def _more(self, *which: Any) -> dict[str, Any]:
        """What else a view has to choose from."""
        return {}

    def rows(self, start: int, stop: int) -> Self:
        """A view of some rows: a new text is read into its row while the others wait."""
        return replace(
            self,
            keys=[k[start:stop] for k in self.keys],
            values=[v[start:stop] for v in self.values],
            positions=self.positions[start:stop],
            lengths=self.lengths[start:stop],
            seen=self.seen[start:stop],
            cross=[(keys[start:stop], values[start:stop]) for keys, values in self.cross],
            cross_mask=None if self.cross_mask is None else self.cross_mask.rows(slice(start, stop)),
            **self._more(slice(start, stop)),
        )

    def across(self, n: int, *, full: bool = False) -> Self:
        """A view of the first n places of the memory; `full` where every row has so many."""
        if not self.cross:
            return self
        mask = self.cross_mask
        if full:
            mask = EVERYWHERE
        elif mask is not None and mask.may_look is not None:
            mask = self._for_kernels(Mask(mask.may_look[..., :n], none_blind=mask.none_blind))
        return replace(self, cross=[(keys[:, :, :n], values[:, :, :n]) for keys, values in self.cross], cross_mask=mask)

    @torch.no_grad()
    def move(
        self,
        rows: Sequence[int],
        to: Sequence[int],
        *,
        slots: Sequence[int] | None = None,
        source: Sequence[int] | None = None,
    ) -> None:
        """What stands in these rows goes on in others: of each so many slots, and so many places of its source.

        No row is both: who moves leaves a place that nobody takes.
        """
        which, where = (torch.tensor(some, device=self.lengths.device) for some in (rows, to))
        for tensor in (self.positions, self.lengths, self.seen, *self._cross_table()):
            tensor.index_copy_(0, where, tensor.index_select(0, which))
        for counts, stores in ((slots, (*self.keys, *self.values)), (source, tuple(chain.from_iterable(self.cross)))):
            if not stores:
                continue
            counts = [stores[0].shape[2]] * len(rows) if counts is None else counts
            if cpu.keeps(stores[0]):
                each = torch.tensor(counts)
                for store in stores:
                    cpu.keep(store, which, where, each)
            else:
                most = max(counts)
                for store in stores:
                    store[where, :, :most] = store[which, :, :most]

    def _cross_table(self) -> list[Tensor]:
        return [] if self.cross_mask is None or self.cross_mask.may_look is None else [self.cross_mask.may_look]

    def crop(self, lengths: Int[Tensor, " batch"]) -> None:
        """Forgets everything from slot lengths[i] on in row i, for instance guesses that proved wrong."""
        slot = torch.arange(self.max_len, device=lengths.device)
        self.positions.masked_fill_(slot >= lengths[:, None], NOTHING)
        self.lengths.copy_(torch.minimum(self.lengths, lengths))
        self.seen.copy_((self.positions != NOTHING).sum(dim=1))

    def clear(self) -> None:
        """Forgets everything and keeps the memory."""
        self.crop(torch.zeros_like(self.lengths))

    def _room(self, n: int) -> slice | None:
        """Where n new tokens go, if that is the same place in every row, which is cheaper to write.

        On the CPU only: a GPU would have to wait for its own lengths, and its index check traps if there is no room.
        """
        if self.lengths.device.type != "cpu" or torch.compiler.is_compiling():
            return None
        shortest, longest = (int(n) for n in self.lengths.aminmax())
        if longest + n > self.max_len:
            raise InputError(f"{longest + n} tokens do not fit into a cache of max_len={self.max_len}")
        return slice(longest, longest + n) if shortest == longest else None


def zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Zeros, not empty: a slot that nobody may look at is still multiplied by 0, and 0 · NaN is NaN.

    On a CPU the system hands out zeros as they are touched: most slots never are, and a large cache costs nothing yet.
    In small pages: of large ones it would clear 2 MB for a row's first word, and that takes longer than to write it.
    """
    n_bytes = prod(shape) * dtype.itemsize
    if torch.device(device).type != "cpu" or n_bytes < LARGE or not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return torch.zeros(shape, dtype=dtype, device=device)
    room = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system that knows no large pages
        room.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(room, dtype=dtype).view(*shape)
