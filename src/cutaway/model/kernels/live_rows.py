"""Packing: the live hypotheses of a beam side by side, so that nothing is computed for those that were dropped.

    rectangle (batch hypothesis …)     a b · ·  |  c · · ·  |  d e f ·
    packed    (living …)               a b c d e f

Parts that treat each token by itself (embeddings, norms, linear maps, feed-forward, the head) read the packed form, as
one row of a batch. Attention needs to know the row of each hypothesis; there they are spread out and gathered again,
unless its kernel reads the packed form.
"""

from dataclasses import dataclass

from jaxtyping import Bool, Int, Shaped
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Packing:
    """Which hypotheses of each row are live, and where they are in the packed form and in the rectangle."""

    living: Bool[Tensor, "batch hypothesis"]
    counts: Int[Tensor, " batch"]
    rows: Int[Tensor, " living"]  # the row of each live hypothesis,
    places: Int[Tensor, " living"]  # its place in the row,
    order: Int[Tensor, " living"]  # the number of live ones before it in the row,
    at: Int[Tensor, " living"]  # and its index in the flattened rectangle
    source: Int[Tensor, " all"]  # for each place of the rectangle, an index into the packed form; any for dropped ones

    @classmethod
    def of(cls, living: Bool[Tensor, "batch hypothesis"]) -> "Packing | None":
        """None if all hypotheses are live, or none: packing would gain nothing."""
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
        """The rectangle. Places of dropped hypotheses get the values of some live one, which are not read."""
        return x.index_select(0, self.source).unflatten(0, self.living.shape)

    def gather(self, x: Shaped[Tensor, "batch hypothesis *more"]) -> Shaped[Tensor, "living *more"]:
        return x.flatten(0, 1).index_select(0, self.at)

    def spread_heads(self, x: Shaped[Tensor, "1 head living d_head"]) -> Shaped[Tensor, "batch head hypothesis d_head"]:
        return self.spread(x[0].transpose(0, 1)).transpose(1, 2)

    def gather_heads(self, x: Shaped[Tensor, "batch head hypothesis d_head"]) -> Shaped[Tensor, "1 head living d_head"]:
        return self.gather(x.transpose(1, 2))[None].transpose(1, 2)
