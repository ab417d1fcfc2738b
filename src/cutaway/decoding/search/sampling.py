"""Sampling: words are drawn, each as often as the model finds it likely.

    argmaxᵢ (scoreᵢ + gᵢ),   gᵢ = −log(−log uᵢ)       takes token i with probability softmax(score)ᵢ

(Gumbel 1954.) The numbers uᵢ are no stream that rows would share, but a hash of (seed, how many tokens are written, i)
(Salmon et al. 2011): a text depends on its own seed alone, whatever is written beside it, in whichever row, and since
when. Nor do the last bits of the scores, which change with the size of a batch, often matter: the best of the sums
leads by 1 on average. Had one number been looked up in the cumulative probabilities, a vocabulary of 50,000 would lay
borders so densely that such bits change a word of a hundred.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.decoding.search.search import GreedySearch, Job
from cutaway.errors import InputError

STRIDE = 0x9E3779B97F4A7C15  # odd, and 2⁶⁴ / the golden ratio: multiples lie far apart


def _signed(n: int, bits: int = 64) -> int:
    """The same bits as torch has them."""
    return (n + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def mixed_bits(x: Int[Tensor, " row"]) -> Int[Tensor, " row"]:
    """Every bit of the result depends on every bit of x. (SplitMix64: Steele et al. 2014)"""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> shift & (1 << 64 - shift) - 1)) * _signed(factor)  # torch's shift copies the sign
    return x ^ (x >> 31 & (1 << 33) - 1)


def gumbel(seeds: Int[Tensor, " row"], step: Int[Tensor, " row"], n: int) -> Float[Tensor, "row n"]:
    """n numbers for each row, from its seed and step alone: −log(−log u), u uniform between 0 and 1."""
    stride = _signed(STRIDE)
    key = mixed_bits(mixed_bits(seeds + stride) + (step + 1) * stride)  # never from 0, which stays 0
    low, high = key[:, None].view(torch.int32).split(1, dim=1)
    # 32 bits are enough for each token, and twice as fast (the constants are C. Wellons's)
    x = torch.arange(n, dtype=torch.int32, device=key.device) * _signed(STRIDE >> 32, 32) + low
    x ^= x >> 16 & 0xFFFF
    x *= 0x7FEB352D
    x ^= high
    x ^= x >> 15 & 0x1FFFF
    x *= _signed(0x846CA68B, 32)
    x ^= x >> 16 & 0xFFFF
    # 1 − u rather than u: large numbers, which win, come from u near 1, where floats have no digits left
    rest = ((x & 0x7FFFFFFF).float() + 0.5) * 2.0**-31
    return rest.clamp_(max=1 - 2.0**-24).neg_().log1p_().neg_().log_().neg_()


class Sampling(GreedySearch):
    """Draws the words of rows with a seed; the others take the likeliest."""

    def __init__(self, **room: Any) -> None:
        super().__init__(**room)
        self.seeds = torch.zeros_like(self.written)
        self.draws = torch.zeros_like(self.done)

    def enter(self, rows: slice, jobs: Sequence[Job]) -> None:
        super().enter(rows, jobs)
        for job in jobs:
            if not isinstance(job.seed, int | None) or isinstance(job.seed, bool):
                raise InputError(f"seed={job.seed!r} is not a whole number")
        self.seeds[rows] = torch.tensor([_signed(job.seed or 0) for job in jobs], device=self.seeds.device)
        self.draws[rows] = torch.tensor([job.seed is not None for job in jobs], device=self.seeds.device)

    def choose(self, scores: Float[Tensor, "row vocab"]) -> Int[Tensor, " row"]:
        n, vocab = scores.shape
        noise = gumbel(self.seeds[:n], self.written[:n], vocab)
        return super().choose(scores + noise * self.draws[:n, None])
