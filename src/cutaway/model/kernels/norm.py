"""Norms in the fastest way for the tensors at hand: our kernel for CPUs without gradients, otherwise PyTorch's."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from cutaway.model.kernels import cpu


def layer_norm(
    x: Float[Tensor, "*batch d_model"], weight: Float[Tensor, " d_model"], bias: Float[Tensor, " d_model"], eps: float
) -> Float[Tensor, "*batch d_model"]:
    """(x − mean) / √(variance + ε) · weight + bias."""
    if cpu.fit(x, weight, bias) and len(weight) % cpu.LANES == 0:
        return cpu.layer_norm(x, weight, bias, eps)
    return F.layer_norm(x, weight.shape, weight, bias, eps).to(x.dtype)


def rms_norm(
    x: Float[Tensor, "*batch d_model"], weight: Float[Tensor, " d_model"], eps: float
) -> Float[Tensor, "*batch d_model"]:
    """x / √(mean square + ε) · weight."""
    wide = x.to(torch.promote_types(x.dtype, weight.dtype))  # autocast does not do this for RMSNorm
    return F.rms_norm(wide, weight.shape, weight, eps).to(x.dtype)
