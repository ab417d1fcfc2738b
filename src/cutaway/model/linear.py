"""A linear map, y = xWᵀ + b: PyTorch's, with other ways to the same numbers for a few rows.

With one row or a handful, all the time goes into reading W.

On a CPU, MKL's product reads it at a third of the memory's speed, or less, when the few rows stand on the left (two
cores of an EPYC); on the right, Wxᵀ, it keeps pace. One row alone is given twice: its own routine is the slow one.

On a GPU, cuBLAS takes twice as long as a kernel that gives every program a few rows of W (`gpu_step_triton.project`).
With more rows, it is slow only where the outputs are no multiple of 8, as the 50,257 tokens of GPT-2; on the right
again, it does not mind.
"""

from importlib.util import find_spec

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.model.tap import watching

FEW = 8
LARGE = 1 << 17  # numbers in a matrix; a smaller one is soon read
WIDEST = 8192  # inputs of a product that stay in a GPU program's registers
HAS_TRITON = find_spec("triton") is not None


class Linear(nn.Linear):
    """`nn.Linear`, soon done with a few rows, too."""

    def forward(self, x: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        return linear(x, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None = None
) -> Float[Tensor, "*batch out"]:
    if x.is_cuda and few(x, weight, FEW):
        from cutaway.model.kernels import gpu_step_triton

        found = gpu_step_triton.project(x.reshape(-1, x.shape[-1]), weight, bias, None, "", None)
        return found.view(*x.shape[:-1], -1)
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or not _from_the_right(x, weight):
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    right = (rows if len(rows) > 1 else torch.cat([rows, rows])).t()
    found = torch.mm(weight, right) if bias is None else torch.addmm(bias[:, None], weight, right)
    found = found.t()[: len(rows)]
    return (found if x.is_cuda else found.contiguous()).reshape(*x.shape[:-1], -1)


def _from_the_right(x: Tensor, weight: Tensor) -> bool:
    return _odd(x, weight) if x.is_cuda else _reading_is_all(x, weight)


def kernels_serve(x: Tensor) -> bool:
    """Whether x is on a GPU for which there are kernels of ours, and nobody watches, learns or compiles."""
    return (
        x.is_cuda
        and HAS_TRITON
        and not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cuda")
        and not watching()
    )


def few(x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"], rows: int) -> bool:
    """Whether a product on a GPU has at most so many rows, and our kernel knows it."""
    return (
        kernels_serve(x)
        and 0 < x.numel() <= rows * x.shape[-1]
        and x.shape[-1] <= WIDEST
        and x.dtype == weight.dtype
        and x.dtype in (torch.bfloat16, torch.float16)
        and weight.is_contiguous()
    )


def _odd(x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"]) -> bool:
    """Whether the rows of y would begin at odd places on a GPU, and those of yᵀ do not."""
    rows = x.numel() // x.shape[-1]
    return (
        x.dtype == weight.dtype
        and x.dtype in (torch.bfloat16, torch.float16)
        and weight.shape[0] % 8 != 0
        and rows % 8 == 0
        and 0 < rows < weight.shape[0] // 8
        and not torch.is_autocast_enabled("cuda")
    )


def _reading_is_all(x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"]) -> bool:
    return (
        0 < x.numel() <= FEW * x.shape[-1]
        and weight.numel() >= LARGE
        and weight.dtype is torch.float32
        and x.dtype is torch.float32
        and not torch.is_autocast_enabled("cpu")
        and torch.backends.mkl.is_available()
    )
