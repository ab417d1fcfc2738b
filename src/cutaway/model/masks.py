"""Masks: which keys each query may look at. A table has True where a query may look at a key.

Masks combine with `&`: a key is seen only if every mask allows it. A causal mask by itself is a flag, not a table,
because fused kernels then skip the future instead of computing and hiding it.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Mask:
    """`may_look` is None if every key may be seen; `causal` also hides the future."""

    may_look: Bool[Tensor, "#batch 1 #query key"] | None = None
    causal: bool = False
    blind: Bool[Tensor, "#batch 1 #query 1"] | None = None  # queries that may look nowhere, if that is known
    none_blind: bool = False  # it is known that each query sees a key, itself at least
    added: Float[Tensor, "#batch 1 #query key"] | None = None  # `may_look` as kernels add it to the scores: 0 or −∞

    def __and__(self, other: "Mask") -> "Mask":
        if self.may_look is None or other.may_look is None:
            both = other.may_look if self.may_look is None else self.may_look
        else:
            both = self.may_look & other.may_look
        return Mask(both, self.causal or other.causal)

    def table(self, n_query: int, n_key: int, device: torch.device) -> Bool[Tensor, "#batch 1 #query key"] | None:
        """The whole mask as one table; None if every key may be seen."""
        if not self.causal:
            return self.may_look
        past = torch.ones(n_query, n_key, dtype=torch.bool, device=device).tril(n_key - n_query)[None, None]
        return past if self.may_look is None else past & self.may_look

    def rows(self, which: slice) -> "Mask":
        """The mask of some rows of a batch."""

        def of(x: Tensor | None) -> Tensor | None:
            return x if x is None or len(x) == 1 else x[which]

        return Mask(of(self.may_look), self.causal, of(self.blind), self.none_blind, of(self.added))

    def written_out(self, dtype: torch.dtype) -> "Mask":
        """With `added`, which is then made once for all blocks; kernels would otherwise make it in each."""
        assert self.may_look is not None
        if self.added is not None and self.added.dtype is dtype:
            return self
        zeros = torch.zeros(self.may_look.shape, dtype=dtype, device=self.may_look.device)
        return replace(self, added=zeros.masked_fill_(~self.may_look, float("-inf")))

    def settled(self, n_query: int, n_key: int, device: torch.device) -> "Mask":
        """The same mask in the form that fused kernels want, a flag or one table, made once for all blocks."""
        if self.may_look is None:
            return self
        table = self.table(n_query, n_key, device)
        assert table is not None
        return Mask(table, blind=None if self.none_blind else blind(table))


def blind(table: Bool[Tensor, "batch 1 query key"]) -> Bool[Tensor, "batch 1 query 1"] | None:
    """The queries that may look nowhere. Needed on a GPU only, where cuDNN's kernel ignores the mask of such a row."""
    return ~table.any(dim=-1, keepdim=True) if table.is_cuda else None


EVERYWHERE = Mask()
CAUSAL = Mask(causal=True)


def padding(real: Bool[Tensor, "batch key"]) -> Mask:
    """Padding is not seen."""
    return Mask(real[:, None, None, :])


def document_starts(documents: Int[Tensor, "batch seq"]) -> Bool[Tensor, "batch seq"]:
    """True where a document begins."""
    return F.pad(documents[:, 1:] != documents[:, :-1], (1, 0), value=True)


def same_document(documents: Int[Tensor, "batch seq"]) -> Mask:
    """In a packed row, each token sees its own document only. A number that comes again later is another document."""
    run = document_starts(documents).cumsum(dim=1)
    return Mask((run[:, :, None] == run[:, None, :])[:, None])


def sliding_window(
    size: int, positions: Int[Tensor, "#batch seq"], key_positions: Int[Tensor, "#batch key"] | None = None
) -> Mask:
    """Each token sees itself and at most `size` - 1 tokens before it and after it."""
    key_positions = positions if key_positions is None else key_positions
    return Mask(((positions[:, :, None] - key_positions[:, None, :]).abs() < size)[:, None])


def padding_mask(real: Bool[Tensor, "batch key"] | None, documents: Int[Tensor, "batch key"] | None = None) -> Mask:
    """The mask of an encoder, and of cross-attention to its output: no padding, and the same document only."""
    mask = EVERYWHERE if real is None else padding(real)
    if documents is not None:
        mask &= same_document(documents)
    return mask if mask.may_look is None else mask.settled(1, mask.may_look.shape[-1], mask.may_look.device)


def causal_mask(
    positions: Int[Tensor, "#batch seq"],
    real: Bool[Tensor, "batch seq"] | None = None,
    documents: Int[Tensor, "batch seq"] | None = None,
    window: int | None = None,
) -> Mask:
    """The mask of a decoder: the past only, no padding, the same document, and not beyond the window."""
    mask = CAUSAL
    if real is not None:
        mask &= padding(real)
    if documents is not None:
        mask &= same_document(documents)
    if window is not None:
        mask &= sliding_window(window, positions)
    return mask.settled(positions.shape[1], positions.shape[1], positions.device)
