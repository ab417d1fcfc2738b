"""Dropout (Srivastava et al. 2014): in training, each number is dropped with probability p, and the rest made up for.

On a GPU the random numbers can cost more than what they are for: ten rounds of Philox for each one, forwards and again
backwards. Compiled training therefore scrambles the number of the place and a seed, which is drawn for each call, by
MurmurHash3's last step: two multiplications, fused into whatever stands beside it, and nothing to keep.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Dropout(nn.Dropout):
    """`nn.Dropout`, with cheap random numbers where they matter."""

    def forward(self, x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        if not self.training:
            return x
        if 0.0 < self.p < 1.0 and x.is_cuda and torch.compiler.is_compiling():
            return scrambled_dropout(x, self.p)
        return super().forward(x)


def scrambled_dropout(x: Float[Tensor, "*any"], p: float) -> Float[Tensor, "*any"]:
    """Dropout by a hash of place and seed."""
    seed = torch.randint(-(1 << 31), 1 << 31, (), device=x.device)
    place = torch.arange(x.numel(), device=x.device, dtype=torch.int32).view(x.shape)
    kept = scrambled(place ^ seed.to(torch.int32)) & 0x7FFFFFFF >= int(p * (1 << 31))
    return torch.where(kept, x / (1 - p), 0.0)


def scrambled(h: Tensor) -> Tensor:
    """MurmurHash3's last step on 32-bit numbers: every bit of the input changes half of the output's."""
    h = h ^ (h >> 16 & 0xFFFF)
    h = h * -2048144789  # 0x85EBCA6B
    h = h ^ (h >> 13 & 0x7FFFF)
    h = h * -1028477387  # 0xC2B2AE35
    return h ^ (h >> 16 & 0xFFFF)
