"""Norms: whatever the size of the vectors in the residual stream, each sub-layer reads numbers of the same scale.

    LayerNorm(x) = (x − mean) / √(variance + ε) · weight + bias     (Ba et al. 2016)
    RMSNorm(x)   =  x / √(mean of x² + ε) · weight                   (Zhang & Sennrich 2019)

mean and variance are those of the d_model numbers of one vector, so each position is normalised by itself.

Under autocast a norm is computed in single precision and returned in the precision of its input: the residual stream of
a bfloat16 run stays in bfloat16, which halves the bytes that each block reads and writes.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.model.kernels.norm import layer_norm, rms_norm
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
        return self.tap("output", layer_norm(x, self.weight, self.bias, self.eps))


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
        return self.tap("output", rms_norm(x, self.weight, self.eps))
