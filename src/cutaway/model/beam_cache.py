"""The KV cache of a beam search: hypotheses share the tokens that they have in common.

Only live hypotheses have to be read. A beam starts with one hypothesis for each text, and pruning drops many later:
`pack` says which are live, and a step then reads their tokens side by side, as one row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from cutaway.errors import InputError
from cutaway.model.cache import EMPTY, Cache, Step
from cutaway.model.kernels import cpu
from cutaway.model.kernels.live_rows import Packing
from cutaway.model.masks import Mask, sliding_window


@dataclass(frozen=True, eq=False)
class Tree(Cache):
    """A cache with several hypotheses in each row, which share the tokens that they have in common.

    `model(ids, cache=tree)` reads one new token of each hypothesis: `ids` is (batch, hypothesis). Every token stays in
    the slot where it was written, and a hypothesis is the set of slots that it may look at, its ancestors. When a beam
    goes on from other hypotheses, only these sets change (`reorder`); no keys and values are copied. Slots that are no
    hypothesis's ancestors can be freed (`collect`).
    """

    ancestors: Bool[Tensor, "batch hypothesis slot"] = field(kw_only=True)
    packing: Packing | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, cache: Cache, n: int) -> "Tree":
        """n hypotheses in each row, which all begin with the tokens of the row. The tensors are those of the cache."""
        ancestors = (cache.positions != EMPTY)[:, None].repeat(1, n, 1)
        return cls(**{f.name: getattr(cache, f.name) for f in fields(Cache)}, ancestors=ancestors)

    def growth(self, n: int) -> int:
        return 1

    def pack(self, packing: Packing) -> Self:
        """A view whose next step reads the tokens of live hypotheses only: `ids` is (1, living)."""
        return replace(self, packing=packing)

    def step(
        self, ids: Int[Tensor, "rows hypothesis"], real: Bool[Tensor, "rows hypothesis"] | None = None,
        window: int | None = None,
    ) -> Step:  # fmt: skip
        """Makes room for one token of each hypothesis."""
        if real is not None:
            raise InputError("every hypothesis reads one token: leave `real` out")
        if self.packing is not None:
            return self._packed_step(ids, self.packing, window)
        if ids.shape != self.ancestors.shape[:2]:
            raise InputError(f"ids of shape {tuple(ids.shape)} for hypotheses {tuple(self.ancestors.shape[:2])}")
        alike = self._room(ids.shape[1])
        slots = self.lengths[:, None] + torch.arange(ids.shape[1], device=ids.device)
        positions = self.seen[:, None].repeat(1, ids.shape[1])
        self.positions.scatter_(1, slots, positions)
        self.ancestors.scatter_(2, slots[:, :, None], True)
        self.lengths.add_(ids.shape[1])
        self.seen.add_(1)
        mask = Mask(self.ancestors[:, None], none_blind=True)
        if window is not None:
            mask = replace(mask & sliding_window(window, positions, self.positions), none_blind=True)
        stores = self._stores(slots if alike is None else alike, self.lengths)
        return Step(positions, self.positions, self._for_kernels(mask), stores)

    def _packed_step(self, ids: Int[Tensor, "1 living"], packing: Packing, window: int | None) -> Step:
        """Makes room for the live hypotheses. The others lose their ancestors, whose slots can then be freed."""
        if ids.shape != (1, packing.n):
            raise InputError(f"ids of shape {tuple(ids.shape)} for {packing.n} live hypotheses")
        self._room(self.ancestors.shape[1])
        rows, places, order = packing.rows, packing.places, packing.order
        slots, positions = self.lengths[rows] + order, self.seen[rows]
        self.positions[rows, slots] = positions
        self.ancestors.logical_and_(packing.living[:, :, None])
        self.ancestors[rows, places, slots] = True
        self.lengths.add_(packing.counts)
        self.seen.add_(1)
        mask = Mask(self.ancestors[:, None], none_blind=True)  # the others see nothing, but their results are not used
        if window is not None:
            here = packing.spread(positions)
            mask = replace(mask & sliding_window(window, here, self.positions), none_blind=True)
        stores = self._stores(slots[None], self.lengths, packing)
        return Step(positions[None], self.positions, self._for_kernels(mask), stores, packing)

    def begin(self) -> None:
        """All hypotheses of a row begin again with the tokens of the row."""
        self.ancestors.copy_((self.positions != EMPTY)[:, None])

    def move(self, rows: Sequence[int], to: Sequence[int], **filled: Sequence[int] | None) -> None:
        super().move(rows, to, **filled)
        self.ancestors[list(to)] = self.ancestors[list(rows)]

    def reorder(self, parents: Int[Tensor, "batch hypothesis"]) -> None:
        """Hypothesis i of a row becomes a continuation of hypothesis parents[i]."""
        whose = parents[:, :, None].expand(self.ancestors.shape)
        self.ancestors.copy_(self.ancestors.gather(1, whose))

    def collect(self, rows: Int[Tensor, " some"]) -> list[int]:
        """Frees the slots of these rows that are no hypothesis's ancestors, and moves the others to the front.

        Returns the number of slots that each row still uses.
        """
        living = self.ancestors[rows].any(dim=1)
        left = living.sum(dim=1)
        most = int(left.max())
        slots = living.int().argsort(dim=1, descending=True, stable=True)[:, :most]
        self._keep(rows, slots, left)
        stays = torch.arange(most, device=rows.device) < left[:, None]
        positions = self.positions[rows].gather(1, slots).masked_fill_(~stays, EMPTY)
        whose = slots[:, None].expand(-1, self.ancestors.shape[1], -1)
        ancestors = self.ancestors[rows].gather(2, whose) & stays[:, None]
        self.positions[rows], self.ancestors[rows] = EMPTY, False
        self.positions[rows, :most], self.ancestors[rows, :, :most] = positions, ancestors
        self.lengths[rows] = left
        return left.tolist()

    def _keep(self, rows: Int[Tensor, " some"], slots: Int[Tensor, "some most"], left: Int[Tensor, " some"]) -> None:
        """Moves the keys and values of these slots to the front."""
        _, n_heads, max_len, d_head = self.keys[0].shape
        if cpu.keeps(self.keys[0]):
            slots = slots.contiguous()
            for store in (*self.keys, *self.values):
                cpu.keep(store, rows, rows, left, slots)
            return
        head = rows[:, None] * n_heads + torch.arange(n_heads, device=rows.device)
        flat, most = (head[:, :, None] * max_len + slots[:, None]).flatten(), slots.shape[1]
        for store in (*self.keys, *self.values):
            store[rows, :, :most] = store.view(-1, d_head).index_select(0, flat).view(-1, n_heads, most, d_head)

    def _more(self, *which: Any) -> dict[str, Any]:
        return {"ancestors": self.ancestors[which]}
