"""Matrices in 8 bits: a quarter of the bytes, and products of integers, which are several times faster on a CPU.

    y = xWᵀ + b ≈ a ⊙ (x̂ Ŵᵀ) ⊙ s + b        Ŵ = round(W / s), one s for each output
                                              x̂ = round(x / a), one a for each row of x

Each row has a scale of its own, so that no row depends on the others of its batch, and sums of integers have no
rounding errors: a product gives a row the same bits alone and in any batch. (Jacob et al. 2018; Dettmers et al. 2022
for scales by row.) Its input may differ in the last bit, because attention adds in another order in another batch. If
that changes how a number is rounded, scores change by about a hundredth, and sometimes a word changes.

Activations have 8 bits if the CPU adds four products at once (VNNI). Older CPUs add two in 16 bits, which would
overflow; there, activations have 7 bits. Without such a kernel, as on a GPU, the same integers are multiplied in
floating point.
"""

import warnings
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int8, UInt8
from torch import Tensor

from cutaway.model.kernels import cpu
from cutaway.model.tap import Part

SMALLEST = torch.tensor(2.0**-100)  # so that a row of zeros is not divided by 0
MANY = 48  # rows, for which oneDNN's kernel is faster than FBGEMM's


@cache
def levels() -> int:
    """The largest integer that an activation is rounded to."""
    return 127 if torch.cpu._is_vnni_supported() else 63


@cache
def has_kernel() -> bool:
    """Whether this PyTorch has a kernel for 8-bit matrices: FBGEMM, on x86."""
    return "fbgemm" in torch.backends.quantized.supported_engines


@cache
def for_few() -> Any:
    """FBGEMM's kernel, which rounds activations to bytes, multiplies integers and returns floating point."""
    # `_op`, because its wrapper for torch.compile would take a tenth of the time of one row
    return torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default._op


@cache
def for_many() -> Any:
    """oneDNN's kernel for activations in bytes: the same bits, faster with MANY rows; None if it is not there."""
    return torch.ops.onednn.qlinear_pointwise.default if torch.backends.mkldnn.is_available() else None


def rounded(weight: Float[Tensor, "out in"]) -> tuple[Int8[Tensor, "out in"], Float[Tensor, " out"]]:
    """Integers in −127 … 127, and the scale of each row.

    A scale has 17 bits and an integer 7, so that their product is exact in the 24 bits of single precision. Rounding
    the products again gives the same integers and scales, so a model can be stored in 8 bits and loaded without loss.
    """
    weight = weight.detach().float()
    scale = (weight.abs().amax(dim=1) / 127).maximum(SMALLEST.to(weight.device))
    large = scale * (2**7 + 1)
    scale = large - (large - scale)  # drops the last 7 bits (Veltkamp 1968)
    return (weight / scale[:, None]).round().to(torch.int8), scale


class Int8Linear(Part):
    """A linear map whose matrix is rounded to integers in −127 … 127."""

    weight: Int8[Tensor, "out in"]
    scale: Float[Tensor, " out"]
    bias: Float[Tensor, " out"] | None

    def __init__(self, weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None) -> None:
        super().__init__()
        whole, scale = rounded(weight)
        self.register_buffer("weight", whole)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if bias is None else bias.detach().float())
        self.levels = levels()
        self._packed: Any = None
        self._packed_for_many: Any = None
        self._panels: cpu.Panels | None = None

    def forward(self, x: Float[Tensor, "*batch row in"]) -> Float[Tensor, "*batch row out"]:
        if self.levels == 127 and self.weight.shape[1] % cpu.QUAD == 0 and cpu.fit(x):
            return cpu.linear(x, self._as_panels())
        size = torch.add(SMALLEST, x.abs().amax(dim=-1, keepdim=True), alpha=1 / self.levels)
        # x / size is in −127 … 127 in every row, whatever the other rows are; multiplying is faster than dividing
        whole = (x * size.reciprocal()).float().round_()
        if x.is_cuda or not has_kernel():
            y = F.linear(whole, self.weight.float()) * self.scale
        elif size.numel() < MANY or for_many() is None:
            y = self.of_few(whole)
        else:  # converting to uint8 directly would take six times as long
            y = self.of_many(whole.to(torch.int8).view(torch.uint8).add_(self.levels + 1))
        y = y.mul_(size) if self.bias is None else torch.addcmul(self.bias, y, size)
        return y if x.dtype is torch.float32 else y.to(x.dtype)

    def of_few(self, whole: Float[Tensor, "*batch row in"]) -> Float[Tensor, "*batch row out"]:
        return for_few()(whole, 1.0, self.levels + 1, self._pack())

    def of_many(self, above_zero: UInt8[Tensor, "*batch row in"]) -> Float[Tensor, "*batch row out"]:
        """Takes activations as bytes, in which 0 is levels + 1."""
        if self._packed_for_many is None:
            zeros = torch.zeros(len(self.scale), dtype=torch.int32)
            self._packed_for_many = torch.ops.onednn.qlinear_prepack(self.weight, None), zeros
        packed, zeros = self._packed_for_many
        scales = 1.0, self.levels + 1, packed, self.scale, zeros, None, 1.0, 0
        return for_many()(above_zero, *scales, torch.float32, "none", [], "")

    def _pack(self) -> Any:
        """The matrix in FBGEMM's layout, made at the first call."""
        if self._packed is None:
            zeros = torch.zeros(len(self.scale), dtype=torch.long)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # deprecated, but nothing else packs matrices yet
                weight = torch._make_per_channel_quantized_tensor(self.weight, self.scale, zeros, 0)
                self._packed = torch.ops.quantized.linear_prepack(weight, None)
        return self._packed

    def _as_panels(self) -> cpu.Panels:
        """The matrix in the layout of our own kernel, made at the first call."""
        if self._panels is None:
            self._panels = cpu.Panels.of(self.weight, self.scale, self.bias)
        return self._panels

    def _load_from_state_dict(self, *given: Any) -> None:
        super()._load_from_state_dict(*given)
        self._packed = self._packed_for_many = self._panels = None  # they were made from the old weights

    def __getstate__(self) -> dict[str, object]:
        # packed matrices can be neither copied nor saved
        return {**self.__dict__, "_packed": None, "_packed_for_many": None, "_panels": None}
