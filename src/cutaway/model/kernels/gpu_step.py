"""A step with few rows on a GPU: the numbers of the plain way, from a third of the kernels.

With one row or a handful, a kernel takes a few microseconds whatever it does, and a block of the plain way is fifteen
of them. Here a norm belongs to the product that reads it, an activation and the sum with the residual stream to the
product that they follow, and storing keys and values to the look-up: a block is five kernels, and each fetches its
weights while the one before it still computes.

`Block` and `SelfAttention` come here by themselves where `fits` and `finds` say so. Somebody who watches gets the plain
way: here is nothing to tap.
"""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.model.cache import KeysValues, Store
from cutaway.model.feed_forward import ACTIVATIONS, FeedForward, GatedFeedForward
from cutaway.model.linear import WIDEST, Linear, few, kernels_serve
from cutaway.model.masks import Mask
from cutaway.model.norms import LayerNorm, RMSNorm
from cutaway.model.positions import Rotation

if TYPE_CHECKING:
    from cutaway.model.blocks import Block

ROWS = 64  # with more, matrix products keep their tiles busy and are faster by themselves
QUERIES = 16  # of heads that share keys
WIDTHS = (16, 32, 64, 128)  # of a head
NAMES = {function: name for name, function in ACTIVATIONS.items()}

Stream = Float[Tensor, "batch seq d_model"]


def finds(query: Tensor, keys: Tensor, mask: Mask) -> bool:
    """Whether `attend` knows such queries, keys and masks."""
    table = mask.may_look
    return (
        kernels_serve(query)
        and query.shape[1] // keys.shape[1] * query.shape[2] <= QUERIES
        and query.shape[-1] in WIDTHS
        and query.dtype == keys.dtype
        and query.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and query.stride(-1) == 1 == keys.stride(-1)
        and keys.stride(2) == keys.shape[-1]
        and not mask.causal
        and (table is None or table.stride(-1) == 1)
    )


def fits(block: "Block", x: Stream, mask: Mask, store: Store | None) -> bool:
    """Whether a block can take this step here."""
    if store is None or store.lengths is None:
        return False
    attention, across, forward = block.attention, block.cross, block.feed_forward
    linears = [attention.query_key_value, attention.output, forward.down]
    linears += [forward.up if isinstance(forward, FeedForward) else forward.gate_up]
    linears += [] if across is None else [across.query, across.output]
    return (
        all(type(linear) is Linear and linear.in_features <= WIDEST for linear in linears)
        and few(x, attention.query_key_value.weight, ROWS)
        and not block.training
        and isinstance(block.attention_norm, LayerNorm | RMSNorm)
        and attention.d_head in WIDTHS
        and attention.n_heads // attention.n_kv_heads * x.shape[1] <= QUERIES
        and store.keys.dtype == x.dtype
        and store.keys.stride(2) == attention.d_head
        and mask.may_look is not None
        and mask.may_look.stride(-1) == 1
        and not mask.causal
    )


def step(
    block: "Block",
    x: Stream,
    mask: Mask,
    rotation: Rotation | None,
    memory: KeysValues | None,
    memory_mask: Mask,
    store: Store,
    *,
    pre: bool,
) -> Stream:
    """What `Block.forward` computes."""

    def read(norm: nn.Module) -> nn.Module | None:
        return norm if pre else None

    def written(x: Stream, norm: nn.Module) -> Stream:
        return x if pre else normed(x, norm)

    look, across, forward = block.attention, block.cross, block.feed_forward
    heads = project(x, look.query_key_value, norm=read(block.attention_norm))
    heads = heads.unflatten(-1, (-1, look.d_head)).transpose(1, 2)
    query, key, value = heads.split((look.n_heads, look.n_kv_heads, look.n_kv_heads), dim=1)
    if rotation is not None:
        query, key = rotation(query), rotation(key)
    found = store_and_look_up(query, key, value, store, mask, look.scale)
    x = written(project(found, look.output, onto=x), block.attention_norm)
    if across is not None:
        assert memory is not None
        query = project(x, across.query, norm=read(block.cross_norm)).unflatten(-1, (-1, across.d_head))
        found = look_up(query.transpose(1, 2), *memory, memory_mask, across.scale)
        x = written(project(found, across.output, onto=x), block.cross_norm)
    norm = read(block.feed_forward_norm)
    if isinstance(forward, GatedFeedForward):
        gate, up = project(x, forward.gate_up, norm=norm).chunk(2, dim=-1)
        features = forward.activation(gate) * up
    else:
        features = project(x, forward.up, norm=norm, activation=NAMES[forward.activation])
    return written(project(features, forward.down, onto=x), block.feed_forward_norm)


def project(
    x: Float[Tensor, "batch seq in"],
    linear: Linear,
    *,
    norm: nn.Module | None = None,
    activation: str = "",
    onto: Float[Tensor, "batch seq out"] | None = None,
) -> Float[Tensor, "batch seq out"]:
    """onto + activation(linear(norm(x))), in one kernel; from nine rows on the norm is one of its own."""
    from cutaway.model.kernels import gpu_step_triton

    of_norm = None if norm is None else _described(norm)
    rows = None if onto is None else onto.reshape(-1, onto.shape[-1])
    given = x.reshape(-1, x.shape[-1]), linear.weight, linear.bias
    found = gpu_step_triton.project(*given, of_norm, activation, rows)
    return found.view(*x.shape[:-1], -1)


def normed(x: Stream, norm: nn.Module) -> Stream:
    from cutaway.model.kernels import gpu_step_triton

    return gpu_step_triton.normed(x.flatten(0, 1), *_described(norm)).view_as(x)


def _described(norm: nn.Module) -> tuple[int, Tensor, Tensor | None, float]:
    """Which norm it is, weight, bias and ε."""
    if isinstance(norm, LayerNorm):
        return 1, norm.weight, norm.bias, norm.eps
    assert isinstance(norm, RMSNorm)
    return 2, norm.weight, None, norm.eps


def store_and_look_up(
    query: Float[Tensor, "batch head query d_head"],
    key: Float[Tensor, "batch kv_head query d_head"],
    value: Float[Tensor, "batch kv_head query d_head"],
    store: Store,
    mask: Mask,
    scale: float | None,
) -> Float[Tensor, "batch query width"]:
    """Appends the new keys and values to a row's own, and looks the queries up in all: the heads' findings."""
    from cutaway.model.kernels import gpu_step_triton

    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return gpu_step_triton.attend(query, (key, value), store.keys, store.values, mask.may_look, store.lengths, scale)


def look_up(
    query: Float[Tensor, "batch head query d_head"],
    keys: Float[Tensor, "batch kv_head key d_head"],
    values: Float[Tensor, "batch kv_head key d_head"],
    mask: Mask,
    scale: float | None,
) -> Float[Tensor, "batch query width"]:
    """The heads' findings in keys and values that stay."""
    from cutaway.model.kernels import gpu_step_triton

    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return gpu_step_triton.attend(query, None, keys, values, mask.may_look, None, scale)
