"""Our own kernels for decoding on a GPU: what they can be given, and how they are called. They are in `gpu_triton`.

Whether they may run at all says `cutaway.model.kernels.gpu_serves`; with many rows, PyTorch's kernels are faster.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway.model.kernels import gpu_triton
from cutaway.model.masks import Mask
from cutaway.model.norms import LayerNorm, RMSNorm

WIDEST = 8192  # inputs of a product, which stay in a program's registers
QUERIES = 16  # of heads that share keys
WIDTHS = (16, 32, 64, 128)  # of a head

Stream = Float[Tensor, "batch seq d_model"]
Keys = Float[Tensor, "batch kv_head key d_head"]
NewKeys = Float[Tensor, "batch kv_head query d_head"]


def few(x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"], rows: int) -> bool:
    """Whether `project` can multiply x with this matrix, and x has at most `rows` rows."""
    return (
        0 < x.numel() <= rows * x.shape[-1]
        and x.shape[-1] <= WIDEST
        and x.dtype == weight.dtype
        and x.dtype in (torch.bfloat16, torch.float16)
        and weight.is_contiguous()
    )


def attends(query: Tensor, keys: Tensor, mask: Mask) -> bool:
    """Whether `attend` can be given these queries, keys and mask."""
    table = mask.may_look
    return (
        query.shape[1] // keys.shape[1] * query.shape[2] <= QUERIES
        and query.shape[-1] in WIDTHS
        and query.dtype == keys.dtype
        and query.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and query.stride(-1) == 1 == keys.stride(-1)
        and keys.stride(2) == keys.shape[-1]
        and not mask.causal
        and (table is None or table.stride(-1) == 1)
    )


def project(
    x: Float[Tensor, "*batch in"],
    weight: Float[Tensor, "out in"],
    bias: Float[Tensor, " out"] | None,
    *,
    norm: nn.Module | None = None,
    activation: str = "",
    onto: Float[Tensor, "*batch out"] | None = None,
) -> Float[Tensor, "*batch out"]:
    """onto + activation(norm(x) Wᵀ + b), in one kernel; with nine rows or more, the norm is a kernel of its own."""
    described = None if norm is None else _described(norm)
    rows = None if onto is None else onto.reshape(-1, onto.shape[-1])
    y = gpu_triton.project(x.reshape(-1, x.shape[-1]), weight, bias, described, activation, rows)
    return y.view(*x.shape[:-1], -1)


def normalised(x: Stream, norm: nn.Module) -> Stream:
    """norm(x)."""
    return gpu_triton.normed(x.flatten(0, 1), *_described(norm)).view_as(x)


def _described(norm: nn.Module) -> tuple[int, Tensor, Tensor | None, float]:
    """The kind of norm (1 LayerNorm, 2 RMSNorm), its weight, bias and ε."""
    if isinstance(norm, LayerNorm):
        return 1, norm.weight, norm.bias, norm.eps
    assert isinstance(norm, RMSNorm)
    return 2, norm.weight, None, norm.eps


def attend(
    query: Float[Tensor, "batch head query d_head"],
    new: tuple[NewKeys, NewKeys] | None,
    keys: Keys,
    values: Keys,
    mask: Mask,
    lengths: Int[Tensor, " batch"] | None,
    scale: float | None,
) -> Float[Tensor, "batch query width"]:
    """softmax(QKᵀ · scale) V, with the heads side by side.

    New keys and values are stored first, so that those of row i end before slot lengths[i].
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return gpu_triton.attend(query, new, keys, values, mask.may_look, lengths, scale)
