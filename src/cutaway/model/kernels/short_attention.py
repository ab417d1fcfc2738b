"""Attention over short sequences on a GPU: a whole head fits into one program, so nothing is cut into tiles.

Flash attention walks through long sequences in tiles of 64 or 128 places; a sentence of 12 tokens leaves nine tenths of
such a tile empty, forwards and backwards. Here each program takes one head of one sentence: it reads the queries, keys
and values where the linear map left them, and a query that may look nowhere gets zeros. The backward pass makes the
pattern again and keeps nothing.

The numbers are those of `look_up`, in float32 inside. `look_up_fused` comes here by itself, in compiled training.
"""

from importlib.util import find_spec

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LONGEST = 64  # queries or keys: beyond, tiles pay
WIDTHS = (16, 32, 64, 128)  # of a head
HAS_TRITON = find_spec("triton") is not None

Queries = Float[Tensor, "batch head query d_head"]
Keys = Float[Tensor, "batch head key d_head"]


def fits(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether these are short, and of the kind that the kernel knows."""
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
    """softmax(QKᵀ · scale) V for a pair of short sequences."""
    return _attend(query, key, value, may_look, causal, query.shape[-1] ** -0.5 if scale is None else scale)


def _side_by_side(x: Tensor) -> Tensor:
    """Room for one like x, laid out so that the heads stand side by side for the linear map that reads them."""
    batch, head, n, d_head = x.shape
    return x.new_empty(batch, n, head, d_head).transpose(1, 2)


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


@torch.library.custom_op("cutaway::attend_short", mutates_args=(), device_types="cuda")
def _attend(query: Tensor, key: Tensor, value: Tensor, may_look: Tensor | None, causal: bool, scale: float) -> Tensor:
    from cutaway.model.kernels import short_attention_triton

    found = _side_by_side(query)
    short_attention_triton.forward(_dense(query), _dense(key), _dense(value), may_look, causal, scale, found)
    return found


@_attend.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, may_look: Tensor | None, causal: bool, scale: float) -> Tensor:
    return _side_by_side(query)


@torch.library.custom_op("cutaway::attend_short_backward", mutates_args=(), device_types="cuda")
def _backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, may_look: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    from cutaway.model.kernels import short_attention_triton

    grads = _side_by_side(query), _side_by_side(key), _side_by_side(value)
    given = _dense(grad), _dense(query), _dense(key), _dense(value)
    short_attention_triton.backward(*given, may_look, causal, scale, *grads)
    return grads


@_backward.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, may_look: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _side_by_side(query), _side_by_side(key), _side_by_side(value)


def _remember(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    query, key, value, may_look, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, may_look)


def _gradient(ctx, grad):  # type: ignore[no-untyped-def]
    query, key, value, may_look = ctx.saved_tensors
    return (*_backward(grad, query, key, value, may_look, ctx.causal, ctx.scale), None, None, None)


_attend.register_autograd(_gradient, setup_context=_remember)
