"""The precision that a model runs in: 32, 16 or 8 bits for each number of its matrices."""

from typing import Literal, TypeVar, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.errors import ConfigError, InputError
from cutaway.model.attention import Attention
from cutaway.model.feed_forward import FeedForward, GatedFeedForward
from cutaway.model.heads import LanguageModelHead, Real
from cutaway.model.kernels.int8 import Int8Linear
from cutaway.model.model import Model
from cutaway.model.tap import Part

Precision = Literal["fp32", "bf16", "int8"]
M = TypeVar("M", bound=Model)


def with_precision(model: M, precision: Precision) -> M:
    """The same model, changed in place: its weights in 32 or 16 bits, or its matrices in 8."""
    match precision:
        case "fp32":
            return model.to(torch.float32)
        case "bf16":
            return model.to(torch.bfloat16)
        case "int8":
            return to_int8(model.to(torch.float32))
    raise InputError(f"precision={precision!r} is not one of {', '.join(get_args(Precision))}")


def to_int8(model: M) -> M:
    """The matrices of the blocks and of the language-model head in 8 bits, in place; the model can no longer learn."""
    if any(isinstance(part, Int8Linear) for part in model.modules()):
        raise ConfigError("this model has 8-bit matrices already")
    for owner in list(model.modules()):
        for name, part in list(owner.named_children()):
            if isinstance(part, LanguageModelHead):
                setattr(owner, name, Int8LanguageModelHead(part))
            elif isinstance(part, nn.Linear) and isinstance(owner, (Attention, FeedForward, GatedFeedForward)):
                setattr(owner, name, Int8Linear(part.weight, part.bias))
    return model.eval()


class Int8LanguageModelHead(Part):
    """De-embedding with a matrix in 8 bits."""

    taps = LanguageModelHead.taps

    def __init__(self, head: LanguageModelHead) -> None:
        super().__init__()
        self.words, self.scale = Int8Linear(head.matrix, head.bias), head.scale

    def forward(self, hidden: Float[Tensor, "*batch d_model"], real: Real = None) -> Float[Tensor, "*batch vocab"]:
        hidden = hidden if self.scale == 1.0 else hidden * self.scale
        return self.tap("logits", self.words(hidden))
