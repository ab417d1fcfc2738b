"""The decoder: blocks in which each position sees itself and earlier positions only, so that it can generate.

If there is an encoder, every block attends to the same final output of it, the memory.
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from cutaway.model.cache import KeysValues, Step
from cutaway.model.encoder import Stack
from cutaway.model.kernels.attend import Bias
from cutaway.model.masks import EVERYWHERE, Mask
from cutaway.model.positions import Rotation


class Decoder(Stack):
    """Blocks that see the past, and the memory if there is one."""

    def remember(self, memory: Float[Tensor, "sentence source d_model"]) -> list[KeysValues]:
        """The keys and values of the encoder's output, for each block."""
        return [block.cross.remember(memory) for block in self if block.cross is not None]

    def forward(
        self,
        x: Float[Tensor, "rows seq d_model"],
        step: Step,
        *,
        rotation: Rotation | None = None,
        bias: Bias | None = None,
        memory: Sequence[KeysValues] = (),
        memory_mask: Mask = EVERYWHERE,
    ) -> Float[Tensor, "rows seq d_model"]:
        for layer, block in enumerate(self):
            remembered = memory[layer] if memory else None
            x = block(
                x,
                step.mask,
                rotation=rotation,
                bias=bias,
                memory=remembered,
                memory_mask=memory_mask,
                store=step.store(layer),
            )
        return x if self.final_norm is None else self.final_norm(x)
