"""The largest of many scores, found block by block: PyTorch's own way looks at each score for longer.

A vocabulary is cut into blocks, and only the blocks with the largest maxima are looked into.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.model.kernels import cpu

BLOCK = 128


def topk(x: Float[Tensor, "*rows vocab"]) -> Int[Tensor, "*rows"]:
    """`x.argmax(dim=-1)`: of equals the first."""
    n = x.shape[-1] // BLOCK
    if n < 2:
        return x.argmax(dim=-1)
    blocks = x[..., : n * BLOCK].unflatten(-1, (n, BLOCK))
    which = blocks.amax(dim=-1).argmax(dim=-1, keepdim=True)
    found = blocks.gather(-2, which[..., None].expand(*which.shape, BLOCK)).squeeze(-2)
    place = torch.cat([found, x[..., n * BLOCK :]], dim=-1).argmax(dim=-1)
    return place + torch.where(place < BLOCK, which[..., 0], n - 1) * BLOCK


def top(x: Float[Tensor, "*rows vocab"], k: int) -> tuple[Float[Tensor, "*rows k"], Int[Tensor, "*rows k"]]:
    """`x.topk(k)`: the k largest stand in the k blocks with the largest maxima, or behind the last block."""
    n = x.shape[-1] // BLOCK
    if n < 2 * k:
        values, indices = x.topk(k)
        return values, indices
    blocks = x[..., : n * BLOCK].unflatten(-1, (n, BLOCK))
    which = blocks.amax(dim=-1).topk(k, sorted=False).indices
    found = blocks.gather(-2, which[..., None].expand(*which.shape, BLOCK)).flatten(-2)
    values, place = torch.cat([found, x[..., n * BLOCK :]], dim=-1).topk(k)
    block = which.gather(-1, (place // BLOCK).clamp(max=k - 1))
    return values, torch.where(place < k * BLOCK, block * BLOCK + place % BLOCK, place + (n - k) * BLOCK)


def likeliest(
    logits: Float[Tensor, "*rows vocab"], k: int, dtype: torch.dtype
) -> tuple[Float[Tensor, "*rows k"], Int[Tensor, "*rows k"]]:
    """The k largest log p of each row, and which they are."""
    if dtype is torch.float32 and cpu.fit(logits):
        return cpu.likeliest(logits, k)
    return top(logits.log_softmax(dim=-1, dtype=dtype), k)
