"""Single precision, where sums, logarithms and losses are taken of a model in 16 bits."""

import torch
from torch import Tensor


def upcast(x: Tensor) -> Tensor:
    """In single precision at least: sums of many small numbers, and logarithms, need it."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
