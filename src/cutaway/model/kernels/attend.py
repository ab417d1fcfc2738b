"""Attention in the fastest way for the tensors at hand.

`attend` gives the numbers of `cutaway.model.attention.attention`, which is the formula, up to the last bits:

    our kernel for CPUs          few queries or few keys, without gradients
    our kernel for GPUs          sequences of up to 64 tokens, in compiled training
    batched matrix products      few queries on a CPU, where our kernel cannot be used
    PyTorch's fused kernel       everything else

`attend_in_step` is attention in a decoding step on a GPU, in one kernel with storing the new keys and values.
"""

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from cutaway.model import kernels
from cutaway.model.kernels import cpu
from cutaway.model.kernels.live_rows import Packing
from cutaway.model.masks import EVERYWHERE, Mask, blind

Queries = Float[Tensor, "batch head query d_head"]
Keys = Float[Tensor, "batch kv_head key d_head"]  # grouped queries: several heads share the keys of one kv_head
Values = Float[Tensor, "batch kv_head key d_value"]
NewKeys = Float[Tensor, "rows kv_head query d_head"]
Bias = Float[Tensor, "#batch head query key"]

FEW_QUERIES, FEW_KEYS = 16, 32  # of a row
LANES = 16  # numbers in a register of AVX-512

# Not cuDNN: with a mask and 64 keys its gradient is NaN where all scores of a query are below −88 (PyTorch #196678).
SOUND = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def attend(
    query: Float[Tensor, "rows head query d_head"],
    key: Keys,
    value: Values,
    mask: Mask = EVERYWHERE,
    *,
    bias: Float[Tensor, "#batch head unpacked_query key"] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    packing: Packing | None = None,
) -> Float[Tensor, "rows head query d_value"]:
    """softmax(QKᵀ · scale + bias) V, as `cutaway.model.attention.attention` computes it step by step.

    `scale` is 1/√d_head by default. Packed queries are one row, and so are their results.
    """
    plain = bias is None and dropout == 0.0 and not mask.causal
    # `small` only if `plain`: with a symbolic length, a comparison would be a condition on the exported model
    small = plain and (query.shape[2] <= FEW_QUERIES or packing is not None or key.shape[2] <= FEW_KEYS)
    if small and cpu.attends(query, key, value, packed=packing is not None):
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        added = None if mask.may_look is None else mask.written_out(query.dtype).added
        return cpu.attend(query, key, value, added, scale, packing)
    if packing is None:
        return _attend_in_pytorch(query, key, value, mask, bias, scale, dropout)
    rows = packing.spread_heads(query)
    return packing.gather_heads(_attend_in_pytorch(rows, key, value, mask, bias, scale, dropout))


def _attend_in_pytorch(
    query: Queries, key: Keys, value: Values, mask: Mask, bias: Bias | None, scale: float | None, dropout: float
) -> Float[Tensor, "batch head query d_value"]:
    n_query, n_key = query.shape[-2], key.shape[-2]
    table = mask.may_look
    causal = False
    if mask.causal and table is None and bias is None and n_query == n_key and n_query > 1:
        causal = True  # a branch, not a value: of a symbolic length the comparison would be no plain bool
    else:
        table = mask.table(n_query, n_key, query.device)
    if query.is_cuda and torch.compiler.is_compiling() and bias is None and dropout == 0.0:
        from cutaway.model.kernels import short_attention

        if short_attention.fits(query, key, value):
            return short_attention.attend_short(query, key, value, table, causal=causal, scale=scale)
    nowhere = mask.blind
    if nowhere is None and table is not None and not mask.none_blind:
        nowhere = blind(table)
    if bias is not None:
        table = bias if table is None else bias.masked_fill(~table, float("-inf"))
    elif mask.added is not None and mask.added.dtype == query.dtype:
        table = mask.added
    # `_attend_few` has no causal mask and no dropout, and gives NaN for a query that may look nowhere
    plain = not causal and dropout == 0.0 and nowhere is None and (table is None or mask.none_blind)
    if plain and few_queries(query, key):
        return _attend_few(query, key, value, table, scale)
    if table is None and dropout == 0.0 and _loses_nan(query, n_key):
        table = torch.ones(n_query, n_key, dtype=torch.bool, device=query.device)  # the same bits otherwise
        table, causal = table.tril() if causal else table, False
    grouped = True if query.shape[1] != key.shape[1] else False  # noqa: SIM210 (a branch, as above)
    risky = query.is_cuda and table is not None and torch.is_grad_enabled()
    with sdpa_kernel(SOUND) if risky else nullcontext():
        heads = F.scaled_dot_product_attention(
            query, key, value, attn_mask=table, dropout_p=dropout, is_causal=causal, scale=scale, enable_gqa=grouped
        )
    return heads if nowhere is None else heads.masked_fill(nowhere, 0.0)


def _loses_nan(query: Queries, n_key: int) -> bool:
    """Whether PyTorch would answer a query of NaN with 0, so that damaged weights give scores that look sound.

    Its fused kernel for CPUs does, with fewer keys than one AVX-512 register holds and without a table.
    """
    return query.device.type == "cpu" and not torch.compiler.is_compiling() and n_key < LANES


def few_queries(query: Queries, key: Keys) -> bool:
    """Whether `_attend_few` is the fastest: on a CPU, for beams and for single queries of several rows.

    Only without gradients, and where the keys of all heads are one stack of matrices, as they are in a cache.
    """
    return (
        (1 if len(query) > 4 else 2) <= query.shape[-2] <= FEW_QUERIES
        and not query.is_cuda
        and not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and query.shape[1] == key.shape[1]
        and key.stride(0) == key.shape[1] * key.stride(1)
    )


def _attend_few(
    query: Queries, key: Keys, value: Values, table: Shaped[Tensor, "..."] | None, scale: float | None
) -> Float[Tensor, "batch head query d_value"]:
    """The formula with batched matrix products: PyTorch's fused kernel on the CPU has a high cost for each head."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    # the keys on the left: with the few queries there, MKL takes a third longer
    products = torch.bmm(key.flatten(0, 1), query.flatten(0, 1).transpose(1, 2)).unflatten(0, query.shape[:2])
    if table is not None and table.dtype is not torch.bool:
        scores = torch.add(table, products.transpose(2, 3), alpha=scale)
    else:
        scores = products.transpose(2, 3).mul(scale)
        scores = scores if table is None else scores.masked_fill_(~table, float("-inf"))
    return torch.bmm(scores.softmax(dim=-1).flatten(0, 1), value.flatten(0, 1)).unflatten(0, query.shape[:2])


def attend_in_step(
    query: Float[Tensor, "rows head query d_head"],
    keys: Keys,
    values: Keys,
    mask: Mask,
    *,
    scale: float | None = None,
    new: tuple[NewKeys, NewKeys] | None = None,
    lengths: Int[Tensor, " batch"] | None = None,
) -> Float[Tensor, "rows query width"] | None:
    """Attention of a decoding step in one kernel on a GPU, with the heads side by side; None where it cannot be used.

    `keys` and `values` are a cache's, or the encoder output's. The kernel first stores the `new` keys and values, so
    that those of row i end before slot lengths[i].
    """
    if not kernels.gpu_serves(query):
        return None
    from cutaway.model.kernels import gpu

    return gpu.attend(query, new, keys, values, mask, lengths, scale) if gpu.attends(query, keys, mask) else None
