"""The KV cache: the keys and values of earlier tokens in every block, so that a new token costs one step.

The caller makes the cache and passes it in: `model(ids, cache=cache)` reads the new tokens and appends them. Use it
under `torch.no_grad()`, because otherwise autograd keeps the values of every step. All tensors are allocated once and
written in place, lengths included, so that a step can be recorded as a CUDA graph. Rows may have different lengths, and
slots with padding count as empty.
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
LARGE = 1 << 20  # bytes; how less than that is allocated makes no difference
EMPTY = -1  # the position of a slot without a token


@dataclass(frozen=True, eq=False)
class Store:
    """One layer's keys and values, and the slots for the tokens of this call."""

    keys: Float[Tensor, "batch head slot d_head"]
    values: Float[Tensor, "batch head slot d_head"]
    slots: slice | Int[Tensor, "rows seq"]  # the same for all rows, or each row's own
    lengths: Int[Tensor, " batch"] | None  # with the new tokens; None if some of these are padding
    packing: Packing | None = None  # of the new tokens, if they are packed

    def append(
        self, keys: Float[Tensor, "rows head seq d_head"], values: Float[Tensor, "rows head seq d_head"]
    ) -> tuple[Float[Tensor, "batch head slot d_head"], Float[Tensor, "batch head slot d_head"]]:
        """Stores the new keys and values, and returns all that are stored."""
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
    """The tokens of one call: their positions, their mask and, with a cache, each layer's store."""

    positions: Int[Tensor, "#batch seq"]
    key_positions: Int[Tensor, "#batch key"]
    mask: Mask
    stores: Sequence[Store] = ()
    packing: Packing | None = None  # of the tokens, if they are packed; only attention needs it

    @property
    def query_positions(self) -> Int[Tensor, "#batch query"]:
        """The positions of the queries of each row, packed or not."""
        return self.positions if self.packing is None else self.packing.spread(self.positions[0])

    def store(self, layer: int) -> Store | None:
        return self.stores[layer] if self.stores else None


@dataclass(frozen=True, eq=False)
class Cache:
    """Keys and values of each layer (batch head slot d_head), and for each row which tokens are in its slots."""

    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    positions: Int[Tensor, "batch slot"]
    lengths: Int[Tensor, " batch"]  # the first free slot of each row
    seen: Int[Tensor, " batch"]  # the number of real tokens of each row, which is the next position
    cross: Sequence[KeysValues] = ()  # of each layer, the keys and values of the encoder's output
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
        shape = (batch, n_heads, max_len, d_head)
        return cls(
            keys=[zeros(shape, dtype, device) for _ in range(n_layers)],
            values=[zeros(shape, dtype, device) for _ in range(n_layers)],
            positions=torch.full((batch, max_len), EMPTY, device=device),
            lengths=torch.zeros(batch, dtype=torch.long, device=device),
            seen=torch.zeros(batch, dtype=torch.long, device=device),
        )

    @property
    def batch(self) -> int:
        return self.positions.shape[0]

    def growth(self, n: int) -> int:
        """The number of tokens by which texts grow when each row reads n."""
        return n

    @property
    def max_len(self) -> int:
        return self.positions.shape[1]

    def step(
        self, ids: Int[Tensor, "batch seq"], real: Bool[Tensor, "batch seq"] | None = None, window: int | None = None
    ) -> Step:
        """Makes room for new tokens at the end of each row. Padding at the end of a row takes no slots."""
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
            positions, stored = counted.clamp(min=0), counted.masked_fill(~real, EMPTY)
            taken, n_real = ((along + 1) * real).amax(dim=1), real.sum(dim=1)
        self.positions.scatter_(1, slots, stored)
        self.lengths.add_(taken)
        self.seen.add_(n_real)
        here = self.positions[:, None, None, :]
        mask = Mask(here != EMPTY)
        if n > 1 or real is not None:  # a single token sees all others
            mask &= Mask(here <= stored[:, None, :, None])
        if window is not None:
            mask &= sliding_window(window, positions, self.positions)
        # without padding each token sees itself; padding sees nothing
        mask = replace(mask, none_blind=True) if real is None else mask.settled(n, self.max_len, ids.device)
        lengths = self.lengths if real is None else None
        return Step(
            positions, self.positions, self._for_kernels(mask), self._stores(slots if alike is None else alike, lengths)
        )

    def _for_kernels(self, mask: Mask) -> Mask:
        """With what kernels on a CPU add to the scores: to make it in each block takes half the time of short texts."""
        return mask.written_out(self.keys[0].dtype) if mask.may_look is not None and not self.keys[0].is_cuda else mask

    def _stores(self, slots: slice | Tensor, lengths: Tensor | None, packing: Packing | None = None) -> list[Store]:
        kept = zip(self.keys, self.values, strict=True)
        return [Store(keys, values, slots, lengths, packing) for keys, values in kept]

    def first(self, n: int) -> Self:
        """A view of the first n slots: the same tensors, but less work while rows are short."""
        keys, values = [k[:, :, :n] for k in self.keys], [v[:, :, :n] for v in self.values]
        return replace(self, keys=keys, values=values, positions=self.positions[:, :n], **self._more(..., slice(n)))

    def _more(self, *which: Any) -> dict[str, Any]:
        """The fields of subclasses, for a view."""
        return {}

    def rows(self, start: int, stop: int) -> Self:
        """A view of some rows, to read a new text into its row while the others wait."""
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

    def first_of_memory(self, n: int, *, full: bool = False) -> Self:
        """A view with the first n positions of the memory; `full` if no row has fewer."""
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
        """Moves rows to other rows, and of each only its first `slots` and the first `source` positions of its memory.

        No row may be in both lists.
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
        """Removes everything from slot lengths[i] on in row i, for instance guesses of speculative decoding."""
        slot = torch.arange(self.max_len, device=lengths.device)
        self.positions.masked_fill_(slot >= lengths[:, None], EMPTY)
        self.lengths.copy_(torch.minimum(self.lengths, lengths))
        self.seen.copy_((self.positions != EMPTY).sum(dim=1))

    def clear(self) -> None:
        """Removes everything but the memory."""
        self.crop(torch.zeros_like(self.lengths))

    def _room(self, n: int) -> slice | None:
        """The slots of n new tokens, if they are the same in every row, which makes writing faster; otherwise None.

        On the CPU only: a GPU would have to wait for its lengths, and if there is no room, its check of indices fails.
        """
        if self.lengths.device.type != "cpu" or torch.compiler.is_compiling():
            return None
        shortest, longest = (int(n) for n in self.lengths.aminmax())
        if longest + n > self.max_len:
            raise InputError(f"{longest + n} tokens do not fit into a cache of max_len={self.max_len}")
        return slice(longest, longest + n) if shortest == longest else None


def zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Zeros and not `torch.empty`: values in hidden slots are multiplied by 0, and 0 · NaN is NaN.

    On a CPU, the system provides zeros when they are first touched. Most slots never are, so a large cache costs
    nothing in advance. Pages are small, because to clear one of 2 MB takes longer than to write a row's first token.
    """
    n_bytes = prod(shape) * dtype.itemsize
    if torch.device(device).type != "cpu" or n_bytes < LARGE or not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return torch.zeros(shape, dtype=dtype, device=device)
    room = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system without large pages
        room.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(room, dtype=dtype).view(*shape)
