"""Matrices in 8 bits: a quarter of the bytes, and products of whole numbers, which a CPU does several times faster.

    y = xWᵀ + b ≈ a ⊙ (x̂ Ŵᵀ) ⊙ s + b        Ŵ = round(W / s), one s for each output
                                              x̂ = round(x / a), one a for each row of x

The scale of a row is its own, so that no row depends on its neighbours: sums of whole numbers have no rounding, and the
product gives a row the same bits alone as in any batch. (Jacob et al. 2018; Dettmers et al. 2022 for scales by row.)
What it is given may differ in the last bit, because attention adds in another order beside others; where that tips a
rounding over, scores move by a hundredth, and now and then a word changes.

Activations have 8 bits where the CPU adds four products at once (VNNI). Older ones add two in 16 bits, which overflow;
they get 7. Elsewhere (a GPU, a CPU without the kernel) the same whole numbers are multiplied in floating point.
"""

import warnings
from functools import cache
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int8
from torch import Tensor, nn

from cutaway.errors import ConfigError
from cutaway.model.attention import Attention
from cutaway.model.feed_forward import FeedForward, GatedFeedForward
from cutaway.model.heads import LanguageModelHead, Real
from cutaway.model.model import Model
from cutaway.model.tap import Part

M = TypeVar("M", bound=Model)
SMALLEST = torch.tensor(1e-30)  # a row of zeros is divided by it
MANY = 48


@cache
def levels() -> int:
    """The largest whole number that an activation becomes."""
    return 127 if torch.cpu._is_vnni_supported() else 63


@cache
def zero(levels: int) -> Float[Tensor, ""]:
    """What 0 becomes: kernels want whole numbers of at least 0."""
    return torch.tensor(levels + 1.0)


@cache
def has_kernel() -> bool:
    """Whether PyTorch's product of 8-bit matrices is here: FBGEMM, on x86."""
    return "fbgemm" in torch.backends.quantized.supported_engines


@cache
def for_few() -> Any:
    """FBGEMM's kernel rounds activations, multiplies whole numbers, and gives back floating point."""
    return torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32


@cache
def for_many() -> Any:
    """oneDNN's kernel does the same to activations that are rounded already: the same bits, sooner if rows are MANY."""
    return torch.ops.onednn.qlinear_pointwise.default if torch.backends.mkldnn.is_available() else None


class Int8Linear(Part):
    """A linear map whose matrix was rounded to whole numbers of −127 … 127."""

    weight: Int8[Tensor, "out in"]
    scale: Float[Tensor, " out"]
    bias: Float[Tensor, " out"] | None

    def __init__(self, weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None) -> None:
        super().__init__()
        weight = weight.detach().float()
        scale = weight.abs().amax(dim=1) / 127 + SMALLEST
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if bias is None else bias.detach().float())
        self._packed: Any = None
        self._packed_for_many: Any = None

    def forward(self, x: Float[Tensor, "*batch row in"]) -> Float[Tensor, "*batch row out"]:
        size = torch.add(SMALLEST, x.abs().amax(dim=-1, keepdim=True), alpha=1 / levels())
        # x / size is −127 … 127 in every row, whatever its neighbours are
        if x.is_cuda or not has_kernel():
            found = F.linear((x / size).float().round(), self.weight.float()) * self.scale
        elif size.numel() < MANY or for_many() is None:
            found = for_few()((x / size).float(), 1.0, levels() + 1, self._pack())
        else:
            found = self._for_many(torch.addcdiv(zero(levels()), x, size).round_())
        found = found.mul_(size) if self.bias is None else torch.addcmul(self.bias, found, size)
        return found if x.dtype is torch.float32 else found.to(x.dtype)

    def _for_many(self, whole: Float[Tensor, "*batch row in"]) -> Float[Tensor, "*batch row out"]:
        if self._packed_for_many is None:
            zeros = torch.zeros(len(self.scale), dtype=torch.int32)
            self._packed_for_many = torch.ops.onednn.qlinear_prepack(self.weight, None), zeros
        packed, zeros = self._packed_for_many
        scales = 1.0, levels() + 1, packed, self.scale, zeros, None, 1.0, 0
        return for_many()(whole.to(torch.uint8), *scales, torch.float32, "none", [], "")

    def _pack(self) -> Any:
        """The matrix as the kernel wants it, made at the first call."""
        if self._packed is None:
            zeros = torch.zeros(len(self.scale), dtype=torch.long)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # this kind of tensor will be gone one day; nothing else packs as yet
                weight = torch._make_per_channel_quantized_tensor(self.weight, self.scale, zeros, 0)
                self._packed = torch.ops.quantized.linear_prepack(weight, None)
        return self._packed

    def __getstate__(self) -> dict[str, object]:
        return {
            **self.__dict__,
            "_packed": None,
            "_packed_for_many": None,
        }  # the packed matrix can be neither copied nor saved


class Int8LanguageModelHead(Part):
    """De-embedding with a matrix in 8 bits."""

    taps = LanguageModelHead.taps

    def __init__(self, head: LanguageModelHead) -> None:
        super().__init__()
        self.words, self.scale = Int8Linear(head.matrix, head.bias), head.scale

    def forward(self, hidden: Float[Tensor, "*batch d_model"], real: Real = None) -> Float[Tensor, "*batch vocab"]:
        hidden = hidden if self.scale == 1.0 else hidden * self.scale
        return self.tap("logits", self.words(hidden))


def to_int8(model: M) -> M:
    """The matrices of the blocks and of the vocabulary become 8-bit, in place; the model can only be run then."""
    if any(isinstance(part, Int8Linear) for part in model.modules()):
        raise ConfigError("this model has 8-bit matrices already")
    for owner in list(model.modules()):
        for name, part in list(owner.named_children()):
            if isinstance(part, LanguageModelHead):
                setattr(owner, name, Int8LanguageModelHead(part))
            elif isinstance(part, nn.Linear) and isinstance(owner, (Attention, FeedForward, GatedFeedForward)):
                setattr(owner, name, Int8Linear(part.weight, part.bias))
    return model.eval()
