"""The fast ways to the numbers of the formulas, and the choice between them: one file for each operation.

    attend   softmax(QKᵀ / √d_head) V
    linear   x Wᵀ + b
    norm     LayerNorm and RMSNorm
    step     a whole block, for passes of few tokens

The parts in `cutaway.model` show the formulas and call these. They choose between PyTorch's kernels and our own: those
for CPUs are in C++ (`cpu`), those for GPUs in Triton (`gpu`, `short_attention`), and modules for GPUs are imported only
when a tensor is on one. Matrices in 8 bits are parts of their own, which replace the usual ones: `int8`.
"""

from importlib.util import find_spec

import torch
from torch import Tensor

from cutaway.model.tap import watching

HAS_TRITON = find_spec("triton") is not None


def gpu_serves(x: Tensor) -> bool:
    """Whether our decoding kernels may run on x: on a GPU, without gradients, compiler, watch and edit."""
    return (
        x.is_cuda
        and HAS_TRITON
        and not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cuda")
        and not watching()
    )
