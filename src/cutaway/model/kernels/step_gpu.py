"""One decoding step of a block on a GPU: the numbers of `Block.forward`, from a third of its kernels.

With few rows, a kernel takes a few microseconds whatever it does, and PyTorch needs fifteen of them for a block. Here a
norm is part of the product that reads its output, an activation and the sum with the residual stream are part of the
product before them, and storing keys and values is part of attention. So a block takes five kernels, and each one
fetches its weights while the one before it still computes.

It is used if `fits` is true, and never during a watch or an edit, because there are no taps here.
"""

from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor, nn

from cutaway.model.cache import KeysValues, Store
from cutaway.model.feed_forward import ACTIVATIONS, FeedForward, GatedFeedForward
from cutaway.model.kernels import gpu
from cutaway.model.kernels.linear import Linear
from cutaway.model.masks import Mask
from cutaway.model.norms import LayerNorm, RMSNorm
from cutaway.model.positions import Rotation

if TYPE_CHECKING:
    from cutaway.model.blocks import Block

ROWS = 64  # with more, matrix products keep their tiles busy and are faster by themselves
NAMES = {function: name for name, function in ACTIVATIONS.items()}

Stream = Float[Tensor, "batch seq d_model"]


def fits(block: "Block", x: Stream, mask: Mask, store: Store) -> bool:
    """Whether `take` can compute this step of this block, on a GPU that our kernels serve."""
    attention, across, forward = block.attention, block.cross, block.feed_forward
    linears = [attention.query_key_value, attention.output, forward.down]
    linears += [forward.up if isinstance(forward, FeedForward) else forward.gate_up]
    linears += [] if across is None else [across.query, across.output]
    return (
        all(type(linear) is Linear and linear.in_features <= gpu.WIDEST for linear in linears)
        and gpu.few(x, attention.query_key_value.weight, ROWS)
        and not block.training
        and isinstance(block.attention_norm, LayerNorm | RMSNorm)
        and attention.d_head in gpu.WIDTHS
        and attention.n_heads // attention.n_kv_heads * x.shape[1] <= gpu.QUERIES
        and store.keys.dtype == x.dtype
        and store.keys.stride(2) == attention.d_head
        and mask.may_look is not None
        and mask.may_look.stride(-1) == 1
        and not mask.causal
    )


def take(
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
    """What `Block.forward` computes; `pre` says whether it is wired with pre-norm."""

    def read(norm: nn.Module) -> nn.Module | None:
        return norm if pre else None

    def written(x: Stream, norm: nn.Module) -> Stream:
        return x if pre else gpu.normalised(x, norm)

    look, across, forward = block.attention, block.cross, block.feed_forward
    heads = gpu.project(x, look.query_key_value.weight, look.query_key_value.bias, norm=read(block.attention_norm))
    heads = heads.unflatten(-1, (-1, look.d_head)).transpose(1, 2)
    query, key, value = heads.split((look.n_heads, look.n_kv_heads, look.n_kv_heads), dim=1)
    if rotation is not None:
        query, key = rotation(query), rotation(key)
    heads = gpu.attend(query, (key, value), store.keys, store.values, mask, store.lengths, look.scale)
    x = written(gpu.project(heads, look.output.weight, look.output.bias, onto=x), block.attention_norm)
    if across is not None:
        assert memory is not None
        query = gpu.project(x, across.query.weight, across.query.bias, norm=read(block.cross_norm))
        query = query.unflatten(-1, (-1, across.d_head)).transpose(1, 2)
        heads = gpu.attend(query, None, *memory, memory_mask, None, across.scale)
        x = written(gpu.project(heads, across.output.weight, across.output.bias, onto=x), block.cross_norm)
    norm = read(block.feed_forward_norm)
    if isinstance(forward, GatedFeedForward):
        both = gpu.project(x, forward.gate_up.weight, forward.gate_up.bias, norm=norm)
        gate, up = both.chunk(2, dim=-1)
        features = forward.activation(gate) * up
    else:
        activation = NAMES[forward.activation]
        features = gpu.project(x, forward.up.weight, forward.up.bias, norm=norm, activation=activation)
    return written(gpu.project(features, forward.down.weight, forward.down.bias, onto=x), block.feed_forward_norm)
