"""A block: attention, then feed-forward, each added to the residual stream. The wiring says where the norm is applied.

Every token has a stream of its own, and sub-layers read from it and add to it. Post-norm (2017) normalises the sum;
pre-norm (GPT-2) normalises only what a sub-layer reads, so that the stream is the plain sum of all that is written to
it.
"""

from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn

from cutaway.errors import InputError
from cutaway.model import kernels
from cutaway.model.attention import CrossAttention, SelfAttention
from cutaway.model.cache import KeysValues, Store
from cutaway.model.dropout import Dropout
from cutaway.model.feed_forward import FeedForward, GatedFeedForward
from cutaway.model.kernels.attend import Bias
from cutaway.model.masks import EVERYWHERE, Mask
from cutaway.model.positions import Rotation
from cutaway.model.tap import Part

Stream = Float[Tensor, "rows seq d_model"]  # the rows of a batch, or one of packed hypotheses
Sublayer = Callable[[Tensor], Tensor]
Wiring = Callable[[Tensor, Sublayer, nn.Module, nn.Module], Tensor]


def post_norm(x: Stream, sublayer: Sublayer, norm: nn.Module, dropout: nn.Module) -> Stream:
    """norm(x + f(x)), as in 2017."""
    return norm(x + dropout(sublayer(x)))


def pre_norm(x: Stream, sublayer: Sublayer, norm: nn.Module, dropout: nn.Module) -> Stream:
    """x + f(norm(x)), as in GPT-2."""
    return x + dropout(sublayer(norm(x)))


class Block(Part):
    """Self-attention, cross-attention if there is a memory to attend to, feed-forward."""

    taps = {
        "residual_before": "the residual stream before the block",
        "residual_after_attention": "the stream after self-attention",
        "residual_after_cross": "the stream after cross-attention",
        "residual_after": "the stream after the block",
    }

    def __init__(
        self,
        attention: SelfAttention,
        feed_forward: FeedForward | GatedFeedForward,
        *,
        norm: Callable[[], Part],
        wiring: Wiring,
        cross: CrossAttention | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention, self.attention_norm = attention, norm()
        if cross is None:
            self.taps = {name: meaning for name, meaning in self.taps.items() if name != "residual_after_cross"}
        self.cross, self.cross_norm = cross, nn.Identity() if cross is None else norm()
        self.feed_forward, self.feed_forward_norm = feed_forward, norm()
        self.wiring, self.dropout = wiring, Dropout(dropout)

    def forward(
        self,
        x: Stream,
        mask: Mask = EVERYWHERE,
        *,
        rotation: Rotation | None = None,
        bias: Bias | None = None,
        memory: KeysValues | None = None,
        memory_mask: Mask = EVERYWHERE,
        store: Store | None = None,
    ) -> Stream:
        if store is not None and store.lengths is not None and bias is None and kernels.gpu_serves(x):
            from cutaway.model.kernels import step

            if step.fits(self, x, mask, store):
                given = (rotation, memory, memory_mask, store)
                return step.take(self, x, mask, *given, pre=self.wiring is pre_norm)
        look = partial(self.attention, mask=mask, rotation=rotation, bias=bias, store=store)
        x = self.tap("residual_before", x)
        x = self.tap("residual_after_attention", self.wiring(x, look, self.attention_norm, self.dropout))
        if self.cross is not None:
            if memory is None:
                raise InputError(
                    "a block with cross-attention needs a memory: the encoder's output, or a cache made from it"
                )
            packing = None if store is None else store.packing
            look_across = partial(self.cross, remembered=memory, mask=memory_mask, packing=packing)
            x = self.tap("residual_after_cross", self.wiring(x, look_across, self.cross_norm, self.dropout))
        return self.tap("residual_after", self.wiring(x, self.feed_forward, self.feed_forward_norm, self.dropout))


def has_blocks(model: nn.Module) -> bool:
    """Whether a model is a Transformer: only blocks have a residual stream, and heads that write to it."""
    return any(isinstance(part, Block) for part in model.modules())
