"""Batches whose rows have different lengths, padded on either side."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Side = Literal["left", "right"]
SIDES: tuple[Side, ...] = ("left", "right")


@dataclass
class Batch:
    """`ids` with padding 0; `positions` as a peer wants them, counted over the real tokens."""

    ids: Tensor
    real: Tensor
    positions: Tensor

    @property
    def mask(self) -> Tensor:
        return self.real.long()


def padded(lengths: list[int], side: Side, vocab_size: int, seed: int = 0) -> Batch:
    """Random ids from 3 up, one row per length."""
    longest = max(lengths)
    index = torch.arange(longest)[None]
    n = torch.tensor(lengths)[:, None]
    real = index < n if side == "right" else index >= longest - n
    ids = torch.randint(3, vocab_size, real.shape, generator=torch.Generator().manual_seed(seed)) * real
    return Batch(ids, real, (real.cumsum(dim=1) - 1).clamp(min=0))
