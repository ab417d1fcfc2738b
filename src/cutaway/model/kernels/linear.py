"""Linear maps, y = x Wᵀ + b, in the fastest way for the tensors at hand: PyTorch's, except for a few rows.

With a few rows, all the time goes into reading W.

On a CPU, MKL's product reads W at a third of the memory's speed, or less, if the few rows are the left factor (two
cores of an EPYC); if they are the right one, Wxᵀ, it keeps pace. A single row is given twice, because MKL's routine for
one row is the slow one.

On a GPU, cuBLAS takes twice as long as our kernel, in which each program reads a few rows of W (`gpu.project`). With
more rows, cuBLAS is slow only if the number of outputs is no multiple of 8, such as the 50,257 tokens of GPT-2; then,
too, x is better on the right.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.model import kernels

FEW_ROWS = 8
LARGE = 1 << 17  # numbers in a matrix; a smaller one is read quickly anyway


class Linear(nn.Linear):
    """`nn.Linear`, also fast for a few rows."""

    def forward(self, x: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        return linear(x, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None = None
) -> Float[Tensor, "*batch out"]:
    if kernels.gpu_serves(x):
        from cutaway.model.kernels import gpu

        if gpu.few(x, weight, FEW_ROWS):
            return gpu.project(x, weight, bias)
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or not _from_the_right(x, weight):
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    right = (rows if len(rows) > 1 else torch.cat([rows, rows])).t()
    y = torch.mm(weight, right) if bias is None else torch.addmm(bias[:, None], weight, right)
    y = y.t()[: len(rows)]
    return (y if x.is_cuda else y.contiguous()).reshape(*x.shape[:-1], -1)


def _from_the_right(x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"]) -> bool:
    """Whether Wxᵀ is faster than xWᵀ."""
    return _odd_outputs(x, weight) if x.is_cuda else _few_rows(x, weight)


def _odd_outputs(x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"]) -> bool:
    """Whether the rows of y would begin at addresses that a GPU reads slowly, and those of yᵀ would not."""
    rows = x.numel() // x.shape[-1]
    return (
        x.dtype == weight.dtype
        and x.dtype in (torch.bfloat16, torch.float16)
        and weight.shape[0] % 8 != 0
        and rows % 8 == 0
        and 0 < rows < weight.shape[0] // 8
        and not torch.is_autocast_enabled("cuda")
    )


def _few_rows(x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"]) -> bool:
    """Whether MKL would spend its time on reading W."""
    return (
        0 < x.numel() <= FEW_ROWS * x.shape[-1]
        and weight.numel() >= LARGE
        and weight.dtype is torch.float32
        and x.dtype is torch.float32
        and not torch.is_autocast_enabled("cpu")
        and torch.backends.mkl.is_available()
    )
