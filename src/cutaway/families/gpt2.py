"""GPT-2 (Radford et al. 2019): GPT with pre-norm, a norm after the last block, and a larger vocabulary and context."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from cutaway.families.gpt import GPT, GPTConfig
from cutaway.families.parts import draw_normal
from cutaway.model.config import Config


@dataclass(frozen=True, kw_only=True)
class GPT2Config(GPTConfig):
    family: ClassVar[str] = "gpt2"

    vocab_size: int = 50257
    max_len: int = 1024


SIZES: dict[str, Config] = {
    "gpt2": GPT2Config(),
    "gpt2-medium": GPT2Config(n_layers=24, d_model=1024, n_heads=16, d_ff=4096),
    "gpt2-large": GPT2Config(n_layers=36, d_model=1280, n_heads=20, d_ff=5120),
    "gpt2-xl": GPT2Config(n_layers=48, d_model=1600, n_heads=25, d_ff=6400),
}


class GPT2(GPT):
    """`logits = model(ids)`."""

    pre_norm: ClassVar[bool] = True

    @torch.no_grad()
    def initialise(self) -> None:
        """Normal with standard deviation 0.02; matrices that write to the stream are divided by √(number of writes)."""
        draw_normal(self, 0.02)
        n_writes = 2 * len(self.decoder)
        for block in self.decoder:
            block.attention.output.weight /= n_writes**0.5
            block.feed_forward.down.weight /= n_writes**0.5
