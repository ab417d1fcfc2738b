"""The decoder: blocks in which every position sees the past only, and generates.

Where there is an encoder, every block looks at the same, final encoder output.
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
    """Blocks that see the past, and the memory where there is one."""

    def remember(self, memory: Float[Tensor, "sentence source d_memory"]) -> list[KeysValues]:
        """Each block's keys and values of the encoder's output."""
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
            looked_at = memory[layer] if memory else None
            x = block(
                x,
                step.mask,
                rotation=rotation,
                bias=bias,
                memory=looked_at,
                memory_mask=memory_mask,
                store=step.store(layer),
            )
        return x if self.final_norm is None else self.final_norm(x)
