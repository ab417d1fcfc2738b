"""The two kernels of `short_attention`, in Triton. One program: one head of one sentence."""
# mypy: ignore-errors
# (what Triton compiles is written in Python's grammar, but is not Python)

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _pattern(query, key, mask, n_query, n_key, mask_row, scale, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
             Q: tl.constexpr, K: tl.constexpr):  # fmt: skip
    """softmax(QKᵀ · scale) over the keys that may be seen; zeros for a query that may look nowhere."""
    row, column = tl.arange(0, Q)[:, None], tl.arange(0, K)[None, :]
    may_look = (row < n_query) & (column < n_key)
    if CAUSAL:
        may_look = may_look & (column <= row)
    if MASKED:
        allowed = tl.load(mask + row * mask_row + column, mask=may_look, other=0)
        may_look = may_look & (allowed != 0)
    scores = tl.where(may_look, tl.dot(query, tl.trans(key)) * scale, float("-inf"))
    highest = tl.max(scores, 1)
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    weight = tl.exp(scores - highest[:, None])
    return weight / tl.maximum(tl.sum(weight, 1), 1e-30)[:, None]


@triton.jit
def _forward(query, key, value, mask, found,
             q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, f_batch, f_head, f_row,
             mask_batch, mask_row, n_query, n_key, scale,
             MASKED: tl.constexpr, CAUSAL: tl.constexpr,
             Q: tl.constexpr, K: tl.constexpr, D: tl.constexpr):  # fmt: skip
    batch, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    row, column, d = tl.arange(0, Q)[:, None], tl.arange(0, K)[:, None], tl.arange(0, D)[None, :]
    q = tl.load(query + batch * q_batch + head * q_head + row * q_row + d, mask=row < n_query, other=0.0)
    k = tl.load(key + batch * k_batch + head * k_head + column * k_row + d, mask=column < n_key, other=0.0)
    v = tl.load(value + batch * v_batch + head * v_head + column * v_row + d, mask=column < n_key, other=0.0)
    pattern = _pattern(q, k, mask + batch * mask_batch, n_query, n_key, mask_row, scale, MASKED, CAUSAL, Q, K)
    mixed = tl.dot(pattern.to(v.dtype), v)
    tl.store(found + batch * f_batch + head * f_head + row * f_row + d, mixed.to(v.dtype), mask=row < n_query)


@triton.jit
def _backward(grad, query, key, value, mask, grad_query, grad_key, grad_value,
              g_batch, g_head, g_row, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
              gq_batch, gq_head, gq_row, gk_batch, gk_head, gk_row, gv_batch, gv_head, gv_row,
              mask_batch, mask_row, n_query, n_key, scale,
              MASKED: tl.constexpr, CAUSAL: tl.constexpr,
              Q: tl.constexpr, K: tl.constexpr, D: tl.constexpr):  # fmt: skip
    batch, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    row, column, d = tl.arange(0, Q)[:, None], tl.arange(0, K)[:, None], tl.arange(0, D)[None, :]
    q = tl.load(query + batch * q_batch + head * q_head + row * q_row + d, mask=row < n_query, other=0.0)
    k = tl.load(key + batch * k_batch + head * k_head + column * k_row + d, mask=column < n_key, other=0.0)
    v = tl.load(value + batch * v_batch + head * v_head + column * v_row + d, mask=column < n_key, other=0.0)
    g = tl.load(grad + batch * g_batch + head * g_head + row * g_row + d, mask=row < n_query, other=0.0)
    pattern = _pattern(q, k, mask + batch * mask_batch, n_query, n_key, mask_row, scale, MASKED, CAUSAL, Q, K)
    of_value = tl.dot(tl.trans(pattern.to(g.dtype)), g)
    tl.store(grad_value + batch * gv_batch + head * gv_head + column * gv_row + d, of_value.to(v.dtype),
             mask=column < n_key)  # fmt: skip
    of_pattern = tl.dot(g, tl.trans(v))
    mean = tl.sum(pattern * of_pattern, 1)
    of_scores = (pattern * (of_pattern - mean[:, None]) * scale).to(q.dtype)
    of_query, of_key = tl.dot(of_scores, k), tl.dot(tl.trans(of_scores), q)
    tl.store(grad_query + batch * gq_batch + head * gq_head + row * gq_row + d, of_query.to(q.dtype),
             mask=row < n_query)  # fmt: skip
    tl.store(grad_key + batch * gk_batch + head * gk_head + column * gk_row + d, of_key.to(k.dtype),
             mask=column < n_key)  # fmt: skip


def _tile(n: int) -> int:
    return max(16, triton.next_power_of_2(n))  # 16: the smallest matrix product of a tensor core


def _mask(may_look: Tensor | None, otherwise: Tensor) -> tuple[Tensor, int, int]:
    """The table as bytes, and the strides of its rows; 0 if all share one row."""
    if may_look is None:
        return otherwise, 0, 0
    table = may_look if may_look.stride(-1) == 1 else may_look.contiguous()
    batch, _, n_query, _ = table.shape
    return table.view(torch.uint8), table.stride(0) if batch > 1 else 0, table.stride(2) if n_query > 1 else 0


def forward(
    query: Tensor, key: Tensor, value: Tensor, may_look: Tensor | None, causal: bool, scale: float, found: Tensor
) -> None:
    batch, head, n_query, d_head = query.shape
    table, mask_batch, mask_row = _mask(may_look, query)
    q, k = _tile(n_query), _tile(key.shape[2])
    _forward[batch, head](
        query, key, value, table, found,
        *query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *found.stride()[:3],
        mask_batch, mask_row, n_query, key.shape[2], scale,
        may_look is not None, causal, q, k, d_head, num_warps=max(q, k) // 16,
    )  # fmt: skip


def backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, may_look: Tensor | None, causal: bool, scale: float,
    grad_query: Tensor, grad_key: Tensor, grad_value: Tensor,
) -> None:  # fmt: skip
    batch, head, n_query, d_head = query.shape
    table, mask_batch, mask_row = _mask(may_look, query)
    q, k = _tile(n_query), _tile(key.shape[2])
    _backward[batch, head](
        grad, query, key, value, table, grad_query, grad_key, grad_value,
        *grad.stride()[:3], *query.stride()[:3], *key.stride()[:3], *value.stride()[:3],
        *grad_query.stride()[:3], *grad_key.stride()[:3], *grad_value.stride()[:3],
        mask_batch, mask_row, n_query, key.shape[2], scale,
        may_look is not None, causal, q, k, d_head, num_warps=max(q, k) // 16,
    )  # fmt: skip
