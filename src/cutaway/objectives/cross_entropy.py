"""Cross-entropy on a GPU: from the logits to loss and gradient in one kernel.

With PyTorch's operations, cross-entropy reads and writes the logits, the largest tensor of a step, about six times. One
program per position needs them once: it reads its row for the sum of the softmax, reads it again while it is still in
the cache, and writes softmax − target.
"""

from importlib.util import find_spec

import torch
from jaxtyping import Float, Int
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None


def fits(scores: Tensor) -> bool:
    return HAS_TRITON and scores.is_cuda and scores.dtype != torch.float64


def cross_entropy(
    scores: Float[Tensor, "n width"],
    targets: Int[Tensor, " n"],
    vocab_size: int,
    *,
    ignored: int,
    smoothing: float,
    learns: bool,
) -> tuple[Float[Tensor, " n"], Float[Tensor, "m width"]]:
    """The loss of each position, and the gradient at its logits; columns from `vocab_size` on are padding."""
    loss, grad = _fused(scores, targets, vocab_size, ignored, smoothing, learns)
    return loss, grad


@torch.library.custom_op("cutaway::cross_entropy", mutates_args=(), device_types="cuda")
def _fused(
    scores: Tensor, targets: Tensor, vocab_size: int, ignored: int, smoothing: float, learns: bool
) -> tuple[Tensor, Tensor]:
    from cutaway.objectives import cross_entropy_triton

    loss, grad = _empty(scores, learns)
    cross_entropy_triton.cross_entropy(scores, targets, vocab_size, ignored, smoothing, learns, loss, grad)
    return loss, grad


@_fused.register_fake
def _(
    scores: Tensor, targets: Tensor, vocab_size: int, ignored: int, smoothing: float, learns: bool
) -> tuple[Tensor, Tensor]:
    return _empty(scores, learns)


def _empty(scores: Tensor, learns: bool) -> tuple[Tensor, Tensor]:
    grad = scores.new_empty(scores.shape if learns else (0, scores.shape[1]))
    return scores.new_empty(len(scores), dtype=torch.float32), grad
