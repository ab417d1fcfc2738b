"""Single precision for sums, logarithms and losses of models in 16 bits."""

import torch
from torch import Tensor


def upcast(x: Tensor) -> Tensor:
    """In single precision at least, which sums of many small numbers and logarithms need."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
