"""Attention over short sequences on a GPU: a whole head fits into one program, so it is not divided into tiles.

Flash attention goes through long sequences in tiles of 64 or 128 positions. A sentence of 12 tokens leaves nine tenths
of such a tile empty, in the forward and in the backward pass. Here each program takes one head of one sentence. It
reads queries, keys and values where the linear map wrote them, and gives zeros for a query that may look nowhere. The
backward pass computes the pattern again, so that nothing has to be stored.

The numbers are those of the formula, computed in float32. `attend` uses this kernel in compiled training.
"""

from importlib.util import find_spec

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LONGEST = 64  # queries or keys; longer sequences are faster in tiles
WIDTHS = (16, 32, 64, 128)  # of a head
HAS_TRITON = find_spec("triton") is not None

Queries = Float[Tensor, "batch head query d_head"]
Keys = Float[Tensor, "batch head key d_head"]


def fits(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the sequences are short, and of a type and width for which there is a kernel."""
    return (
        HAS_TRITON
        and query.is_cuda
        and query.dtype in (torch.bfloat16, torch.float16)
        and query.dtype == key.dtype == value.dtype
        and query.shape[1] == key.shape[1]
        and query.shape[-1] == value.shape[-1]
        and query.shape[-1] in WIDTHS
        and query.shape[-2] <= LONGEST
        and key.shape[-2] <= LONGEST
    )


def attend_short(
    query: Queries,
    key: Keys,
    value: Keys,
    may_look: Bool[Tensor, "#batch 1 #query key"] | None,
    *,
    causal: bool,
    scale: float | None,
) -> Queries:
    """softmax(QKᵀ · scale) V for short sequences."""
    return _attend(query, key, value, may_look, causal, query.shape[-1] ** -0.5 if scale is None else scale)


def _side_by_side(x: Tensor) -> Tensor:
    """An empty tensor like x, with the heads side by side in memory for the linear map that reads them."""
    batch, head, n, d_head = x.shape
    return x.new_empty(batch, n, head, d_head).transpose(1, 2)


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


@torch.library.custom_op("cutaway::attend_short", mutates_args=(), device_types="cuda")
def _attend(query: Tensor, key: Tensor, value: Tensor, may_look: Tensor | None, causal: bool, scale: float) -> Tensor:
    from cutaway.model.kernels import short_attention_triton

    heads = _side_by_side(query)
    short_attention_triton.forward(_dense(query), _dense(key), _dense(value), may_look, causal, scale, heads)
    return heads


@_attend.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, may_look: Tensor | None, causal: bool, scale: float) -> Tensor:
    return _side_by_side(query)


@torch.library.custom_op("cutaway::attend_short_backward", mutates_args=(), device_types="cuda")
def _backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, may_look: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    from cutaway.model.kernels import short_attention_triton

    grads = _side_by_side(query), _side_by_side(key), _side_by_side(value)
    inputs = _dense(grad), _dense(query), _dense(key), _dense(value)
    short_attention_triton.backward(*inputs, may_look, causal, scale, *grads)
    return grads


@_backward.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, may_look: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _side_by_side(query), _side_by_side(key), _side_by_side(value)


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    query, key, value, may_look, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, may_look)


def _gradient(ctx, grad):  # type: ignore[no-untyped-def]
    query, key, value, may_look = ctx.saved_tensors
    return (*_backward(grad, query, key, value, may_look, ctx.causal, ctx.scale), None, None, None)


_attend.register_autograd(_gradient, setup_context=_save)
