"""How a recurrent model uses a cache.

A Transformer's cache has a key and a value for every token. Here the same slots have the layer's state and cell after
every token, and a new token continues from those of the token before it. For a single text, the last pair would be
enough; but this way hypotheses share their beginnings, guesses can be removed and texts moved between rows by the same
code as for keys and values.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.model.cache import Cache, Step, Store
from cutaway.model.lstm import StepValues

States = Float[Tensor, "batch some d"]
Advance = Callable[[Float[Tensor, "batch some gates"], States, States], StepValues]


class PreviousStates:
    """For each new token, the slot of the token before it: the one that it may see and whose position is one less."""

    def __init__(self, step: Step, cache: Cache, n: int) -> None:
        self.packing, self.stores = step.packing, step.stores
        assert step.mask.may_look is not None
        before: Bool[Tensor, "batch some slot"] = step.mask.may_look[:, 0] & (
            step.key_positions[:, None] == step.query_positions[:, :, None] - 1
        )
        self.known = before.any(dim=-1)
        self.parents = before.int().argmax(dim=-1)
        # one token of each hypothesis: none of them depends on another
        together = cache.growth(n) == 1
        width = self.known.shape[1]
        self.parts = [slice(0, width)] if together else [slice(i, i + 1) for i in range(width)]

    def run(
        self,
        layer: int,
        from_input: Float[Tensor, "rows seq gates"],
        begin: tuple[Float[Tensor, "batch d"], Float[Tensor, "batch d"]],
        advance: Advance,
    ) -> list[StepValues]:
        """Computes and stores a layer's states and cells. A text starts from the state and the cell in `begin`."""
        from_input = from_input if self.packing is None else self.packing.spread(from_input[0])
        kept, slots = self._places(layer, from_input, begin[0])
        history = []
        for part in self.parts:
            state, cell = (
                torch.where(self.known[:, part, None], _take(store, self.parents[:, part]), first[:, None])
                for store, first in zip(kept, begin, strict=True)
            )
            history.append(advance(from_input[:, part], state, cell))
            for store, new in zip(kept, (history[-1].state, history[-1].cell), strict=True):
                self._put(store, slots[:, part] if self.packing is None else slots, new)
        return history

    def packed(self, x: Float[Tensor, "batch some d"]) -> Float[Tensor, "rows seq d"]:
        """In the form in which the tokens came, packed or not."""
        return x if self.packing is None else self.packing.gather(x)[None]

    def _places(
        self, layer: int, from_input: Float[Tensor, "batch some gates"], like: Float[Tensor, "batch d"]
    ) -> tuple[tuple[Float[Tensor, "batch slot d"], Float[Tensor, "batch slot d"]], Int[Tensor, "rows seq"]]:
        """Where states and cells are stored, and the slots of new ones; without a cache, for this step only."""
        batch, n, device = *from_input.shape[:2], from_input.device
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
