"""Hypotheses side by side without those that are dead, so that nothing is computed in vain.

    rectangle (batch hypothesis …)     a b · ·  |  c · · ·  |  d e f ·
    packed    (living …)               a b c d e f

Whatever treats every token by itself (embeddings, norms, linear maps, feed-forward, the head) reads the packed form, as
one row of a batch. Attention is where a text's hypotheses meet: there they are spread out, and gathered again.
"""

from dataclasses import dataclass

from jaxtyping import Bool, Int, Shaped
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Packing:
    """Who of each row lives, and where it stands in the packed form and in the rectangle."""

    living: Bool[Tensor, "batch hypothesis"]
    counts: Int[Tensor, " batch"]
    rows: Int[Tensor, " living"]  # of each that lives: its row,
    places: Int[Tensor, " living"]  # its place there,
    order: Int[Tensor, " living"]  # and how many of its row live before it
    at: Int[Tensor, " living"]  # row and place in one number
    source: Int[Tensor, " all"]  # of each place: which of the living stands there; anyone where nobody does

    @classmethod
    def of(cls, living: Bool[Tensor, "batch hypothesis"]) -> "Packing | None":
        """None where all live, or nobody does: there is nothing to gain."""
        counted = living.cumsum(dim=1)
        counts = counted[:, -1]
        n = int(counts.sum())
        if n in (0, living.numel()):
            return None
        at = living.flatten().nonzero()[:, 0]
        rows = at // living.shape[1]
        source = (living.flatten().cumsum(dim=0) - 1).clamp_(min=0)
        return cls(living, counts, rows, at % living.shape[1], counted.flatten()[at] - 1, at, source)

    @property
    def n(self) -> int:
        return len(self.at)

    def spread(self, x: Shaped[Tensor, "living *more"]) -> Shaped[Tensor, "batch hypothesis *more"]:
        """The dead are given what one of the living has: a number, and never read."""
        return x.index_select(0, self.source).unflatten(0, self.living.shape)

    def gather(self, x: Shaped[Tensor, "batch hypothesis *more"]) -> Shaped[Tensor, "living *more"]:
        return x.flatten(0, 1).index_select(0, self.at)

    def spread_heads(self, x: Shaped[Tensor, "1 head living d_head"]) -> Shaped[Tensor, "batch head hypothesis d_head"]:
        return self.spread(x[0].transpose(0, 1)).transpose(1, 2)

    def gather_heads(self, x: Shaped[Tensor, "batch head hypothesis d_head"]) -> Shaped[Tensor, "1 head living d_head"]:
        return self.gather(x.transpose(1, 2))[None].transpose(1, 2)
