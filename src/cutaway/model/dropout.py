"""Dropout (Srivastava et al. 2014): in training, each number is 0 with probability p, else divided by 1 − p.

On a GPU, drawing the random numbers can cost more than applying them: each takes ten rounds of Philox, in the forward
pass and again in the backward pass. Compiled training instead hashes the index of each number together with a seed,
which is drawn for each call, by the last step of MurmurHash3. That takes two multiplications, which are fused with the
operations around them, and nothing has to be stored.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Dropout(nn.Dropout):
    """`nn.Dropout`, with cheaper random numbers in compiled training on a GPU."""

    def forward(self, x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        if not self.training:
            return x
        if 0.0 < self.p < 1.0 and x.is_cuda and torch.compiler.is_compiling():
            return hashed_dropout(x, self.p)
        return super().forward(x)


def hashed_dropout(x: Float[Tensor, "*any"], p: float) -> Float[Tensor, "*any"]:
    """Dropout by a hash of each number's index and a seed."""
    seed = torch.randint(-(1 << 31), 1 << 31, (), device=x.device)
    index = torch.arange(x.numel(), device=x.device, dtype=torch.int32).view(x.shape)
    kept = murmur_hash(index ^ seed.to(torch.int32)) & 0x7FFFFFFF >= int(p * (1 << 31))
    return torch.where(kept, x / (1 - p), 0.0)


def murmur_hash(h: Tensor) -> Tensor:
    """The last step of MurmurHash3 on 32-bit numbers: each bit of the input changes about half of the output's bits."""
    h = h ^ (h >> 16 & 0xFFFF)
    h = h * -2048144789  # 0x85EBCA6B
    h = h ^ (h >> 13 & 0x7FFFF)
    h = h * -1028477387  # 0xC2B2AE35
    return h ^ (h >> 16 & 0xFFFF)
