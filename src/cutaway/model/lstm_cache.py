"""How a recurrent model reads on from a cache.

A Transformer's cache keeps a key and a value of every token. Here the same places keep what the layer's state and cell
were behind every token, and a new token goes on from those of the token before it. One pair would do for a text alone;
but so beams share their beginnings, guesses can be taken back and texts move between rows, all by the code that does it
for keys and values.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.model.cache import Cache, Step, Store
from cutaway.model.lstm import Turn

States = Float[Tensor, "batch some d"]
Advance = Callable[[Float[Tensor, "batch some gates"], States, States], Turn]


class Past:
    """Where each token of a step finds the one before it: the slot that it sees and that stands one place back."""

    def __init__(self, step: Step, cache: Cache, n: int) -> None:
        self.packing, self.stores = step.packing, step.stores
        assert step.mask.may_look is not None
        before: Bool[Tensor, "batch some slot"] = step.mask.may_look[:, 0] & (
            step.key_positions[:, None] == step.query_positions[:, :, None] - 1
        )
        self.known = before.any(dim=-1)
        self.parents = before.int().argmax(dim=-1)
        # tokens of one depth, one of each hypothesis, do not wait for each other
        together = cache.growth(n) == 1
        width = self.known.shape[1]
        self.parts = [slice(0, width)] if together else [slice(i, i + 1) for i in range(width)]

    def read_on(
        self,
        layer: int,
        entered: Float[Tensor, "rows seq gates"],
        begin: tuple[Float[Tensor, "batch d"], Float[Tensor, "batch d"]],
        advance: Advance,
    ) -> list[Turn]:
        """Takes a layer's steps, and keeps its states. A text begins with the state and the cell of `begin`."""
        entered = entered if self.packing is None else self.packing.spread(entered[0])
        kept, slots = self._places(layer, entered, begin[0])
        turns = []
        for part in self.parts:
            state, cell = (
                torch.where(self.known[:, part, None], _take(store, self.parents[:, part]), first[:, None])
                for store, first in zip(kept, begin, strict=True)
            )
            turns.append(advance(entered[:, part], state, cell))
            for store, new in zip(kept, (turns[-1].state, turns[-1].cell), strict=True):
                self._put(store, slots[:, part] if self.packing is None else slots, new)
        return turns

    def packed(self, x: Float[Tensor, "batch some d"]) -> Float[Tensor, "rows seq d"]:
        """As the tokens came."""
        return x if self.packing is None else self.packing.gather(x)[None]

    def _places(
        self, layer: int, entered: Float[Tensor, "batch some gates"], like: Float[Tensor, "batch d"]
    ) -> tuple[tuple[Float[Tensor, "batch slot d"], Float[Tensor, "batch slot d"]], Int[Tensor, "rows seq"]]:
        """Where states and cells are kept, and the slots of the new ones; for this step alone, if nothing is kept."""
        batch, n, device = *entered.shape[:2], entered.device
        if not self.stores:
            own = torch.arange(n, device=device).expand(batch, n)
            return (like.new_zeros(batch, n, like.shape[1]), like.new_zeros(batch, n, like.shape[1])), own
        store: Store = self.stores[layer]
        slots = store.slots
        if isinstance(slots, slice):
            slots = torch.arange(slots.start, slots.stop, device=device).expand(batch, n)
        return (store.keys[:, 0], store.values[:, 0]), slots

    def _put(self, store: Float[Tensor, "batch slot d"], slots: Int[Tensor, "rows seq"], new: States) -> None:
        if self.packing is not None:
            store[self.packing.rows, slots[0]] = self.packing.gather(new).to(store.dtype)
        else:
            store.scatter_(1, slots[:, :, None].expand(new.shape), new.to(store.dtype))


def _take(store: Float[Tensor, "batch slot d"], which: Int[Tensor, "batch some"]) -> States:
    return store.gather(1, which[:, :, None].expand(-1, -1, store.shape[2]))
