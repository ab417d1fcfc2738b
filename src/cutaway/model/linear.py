"""A linear map, y = xWᵀ + b: PyTorch's, with another way to the same numbers for a few rows on a CPU.

With one row or a handful, all the time goes into reading W. MKL's product reads it at a third of the memory's speed, or
less, when the few rows stand on the left (two cores of an EPYC); on the right, Wxᵀ, it keeps pace. One row alone is
given twice: its own routine is the slow one.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

FEW = 8
LARGE = 1 << 17  # numbers in a matrix; a smaller one is soon read


class Linear(nn.Linear):
    """`nn.Linear`, soon done with a few rows, too."""

    def forward(self, x: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        return linear(x, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None = None
) -> Float[Tensor, "*batch out"]:
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or not _reading_is_all(x, weight):
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    right = (rows if len(rows) > 1 else torch.cat([rows, rows])).t()
    found = torch.mm(weight, right) if bias is None else torch.addmm(bias[:, None], weight, right)
    return found.t()[: len(rows)].contiguous().view(*x.shape[:-1], -1)


def _reading_is_all(x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"]) -> bool:
    return (
        0 < x.numel() <= FEW * x.shape[-1]
        and weight.numel() >= LARGE
        and weight.dtype is torch.float32
        and x.dtype is torch.float32
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and torch.backends.mkl.is_available()
    )
