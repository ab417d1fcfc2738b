"""A whole block in a few kernels, for passes so short that most of their time goes into calling them.

`block_at_once` gives the numbers of `Block.forward`, or None where the block has to go part by part:

    on a GPU   one decoding step, in five kernels       `step_gpu`
    on a CPU   few tokens of a translator in 8 bits     `step_cpu`, in one call and with the same bits

There are no taps in there, so whoever watches or edits goes part by part.
"""

from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from cutaway.model.cache import KeysValues, Store
from cutaway.model.kernels import gpu_serves, step_cpu
from cutaway.model.masks import Mask
from cutaway.model.positions import Rotation

if TYPE_CHECKING:
    from cutaway.model.blocks import Block

Stream = Float[Tensor, "rows seq d_model"]


def block_at_once(
    block: "Block",
    x: Stream,
    mask: Mask,
    *,
    rotation: Rotation | None,
    memory: KeysValues | None,
    memory_mask: Mask,
    store: Store | None,
    pre: bool,
) -> Stream | None:
    """The residual stream after the block; `pre` says whether it is wired with pre-norm."""
    if x.is_cuda:
        if store is None or store.lengths is None or not gpu_serves(x):
            return None
        from cutaway.model.kernels import step_gpu

        if not step_gpu.fits(block, x, mask, store):
            return None
        return step_gpu.take(block, x, mask, rotation, memory, memory_mask, store, pre=pre)
    if rotation is not None or block.training or (memory is None) != (block.cross is None):
        return None
    if not step_cpu.fits(x, mask, memory_mask, store, memory):
        return None
    plan = step_cpu.plan_of(block, pre=pre)
    return None if plan is None else step_cpu.take(plan, x, mask, store, memory, memory_mask)
