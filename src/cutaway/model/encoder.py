"""The encoder: blocks in which each position sees the whole sequence. Its output is a representation of the input."""

from collections.abc import Iterable, Iterator
from typing import cast

from jaxtyping import Float
from torch import Tensor

from cutaway.model.blocks import Block
from cutaway.model.kernels.attend import Bias
from cutaway.model.masks import EVERYWHERE, Mask
from cutaway.model.positions import Rotation
from cutaway.model.tap import Part


class Stack(Part):
    """Blocks on top of each other, numbered from 0, and in pre-norm models a norm after the last one."""

    def __init__(self, blocks: Iterable[Block], *, final_norm: Part | None = None) -> None:
        super().__init__()
        self.n_layers = 0
        for block in blocks:
            self.add_module(str(self.n_layers), block)  # so that names are encoder.3.attention
            self.n_layers += 1
        self.final_norm = final_norm

    def __getitem__(self, layer: int) -> Block:
        return cast(Block, self._modules[str(range(self.n_layers)[layer])])

    def __len__(self) -> int:
        return self.n_layers

    def __iter__(self) -> Iterator[Block]:
        return (self[layer] for layer in range(self.n_layers))


class Encoder(Stack):
    """Blocks that see all positions."""

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        mask: Mask = EVERYWHERE,
        *,
        rotation: Rotation | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        for block in self:
            x = block(x, mask, rotation=rotation, bias=bias)
        return x if self.final_norm is None else self.final_norm(x)
