"""Norms keep the residual stream readable: whatever its size, each sub-layer sees numbers of the same scale.

LayerNorm(x) = (x - mean) / √(variance + ε) · weight + bias (Ba et al. 2016); RMSNorm leaves the mean and the bias out.

Under autocast a norm computes in single precision and gives back the precision that it was given: the residual stream
of a bfloat16 run is bfloat16, half the bytes at every block.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.model.kernels import cpu
from cutaway.model.tap import Part


class LayerNorm(Part):
    """Centres and scales each vector, then stretches and shifts it by learned amounts."""

    taps = {
        "scale": "1 / √(variance + ε) of each vector, which a frozen norm multiplies by",
        "output": "the normalised vector that the sub-layer reads",
    }

    def __init__(self, d_model: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        if self.reads("scale") or self.edits("scale"):
            centred = x - x.mean(-1, keepdim=True)
            variance = centred.square().mean(-1, keepdim=True)  # x.var takes ten times as long on a CPU
            scale = self.tap("scale", (variance + self.eps).rsqrt())
            if self.edits("scale"):
                return self.tap("output", (centred * scale * self.weight + self.bias).to(x.dtype))
        if cpu.fit(x, self.weight, self.bias) and len(self.weight) % cpu.LANES == 0:
            return self.tap("output", cpu.layer_norm(x, self.weight, self.bias, self.eps))
        return self.tap("output", F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps).to(x.dtype))


class RMSNorm(Part):
    """Scales each vector to a root mean square of 1, then stretches it by learned amounts."""

    taps = {
        "scale": "1 / √(mean square + ε) of each vector, which a frozen norm multiplies by",
        "output": "the normalised vector that the sub-layer reads",
    }

    def __init__(self, d_model: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        if self.reads("scale") or self.edits("scale"):
            scale = self.tap("scale", (x.square().mean(-1, keepdim=True) + self.eps).rsqrt())
            if self.edits("scale"):
                return self.tap("output", (x * scale * self.weight).to(x.dtype))
        wide = x.to(torch.promote_types(x.dtype, self.weight.dtype))  # autocast does not do it for this norm
        return self.tap("output", F.rms_norm(wide, self.weight.shape, self.weight, self.eps).to(x.dtype))
