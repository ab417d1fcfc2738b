"""Cross-entropy, −log p(target), summed over the targets.

Losses are sums here. The training step divides by the number of targets of the whole step, so that neither padding nor
the way a step is split changes the result.

The logits are the largest tensor of a model (32 × 1024 positions × 50,000 tokens are 6.6 GB). They need never exist at
once: `summed_cross_entropy` computes them for a few positions at a time, takes the loss and its gradient,
softmax − target, from them, and drops them.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from cutaway.model.embeddings import autocast_dtype
from cutaway.model.heads import LanguageModelHead, MaskedLanguageModelHead
from cutaway.model.tap import Part
from cutaway.model.upcast import upcast
from cutaway.objectives.cross_entropy import cross_entropy, fits

IGNORED = -100  # a target that does not count: padding, a token that was not masked


def token_loss(
    head: Part, hidden: Float[Tensor, "*batch d_model"], targets: Int[Tensor, "*batch"], *, smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """The summed loss of a head over the vocabulary. If the logits are watched, all of them are computed."""
    if isinstance(head, MaskedLanguageModelHead):
        return token_loss(head.words, head.transform(hidden), targets, smoothing=smoothing)
    if not isinstance(head, LanguageModelHead) or head.reads("logits") or head.edits("logits"):
        return class_loss(head(hidden), targets, smoothing=smoothing)
    return summed_cross_entropy(hidden * head.scale, head.matrix, targets, bias=head.bias, smoothing=smoothing)


def class_loss(
    scores: Float[Tensor, "*batch n"], targets: Int[Tensor, "*batch"], *, smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """The summed loss of given logits."""
    scores = upcast(scores.flatten(0, -2))
    return F.cross_entropy(scores, targets.flatten(), ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing)


def summed_cross_entropy(
    hidden: Float[Tensor, "*batch d_model"],
    matrix: Float[Tensor, "vocab d_model"],
    targets: Int[Tensor, "*batch"],
    *,
    bias: Float[Tensor, "vocab"] | None = None,
    smoothing: float = 0.0,
    at_once: int | None = None,
) -> Float[Tensor, ""]:
    """−log softmax(hidden · matrixᵀ + bias) at the targets, summed, `at_once` positions at a time.

    Label smoothing (Szegedy et al. 2016) gives the target 1 − smoothing and shares the rest among all tokens.
    """
    hidden, targets = hidden.to(autocast_dtype(hidden)).flatten(0, -2), targets.flatten()
    if at_once is None:
        at_once = max(64, (1 << (29 if hidden.is_cuda else 24)) // len(matrix))
    n_parts = max(1, -(-len(hidden) // at_once))
    learns = torch.is_grad_enabled()  # here, because inside `forward` gradients always seem enabled
    return _SummedCrossEntropy.apply(hidden, matrix, bias, targets, smoothing, n_parts, learns)


class _SummedCrossEntropy(torch.autograd.Function):
    """The gradient is computed in the forward pass: computing the logits again would cost a third more."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        matrix: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        n_parts: int,
        learns: bool,
    ) -> Tensor:
        wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        learns = learns and any(ctx.needs_input_grad[:3])
        vocab_size = len(matrix)
        # on a GPU, rows should be multiples of 16 bytes: GPT-2's 50,257 tokens are padded to 50,304
        extra = -vocab_size % 64 if hidden.is_cuda and vocab_size % 8 else 0
        narrow = F.pad(matrix.to(hidden.dtype), (0, 0, 0, extra)) if extra else matrix.to(hidden.dtype)
        narrow_bias = None if bias is None else F.pad(bias.to(hidden.dtype), (0, extra))
        total = torch.zeros((), dtype=wide, device=hidden.device)
        grads, grad_matrix, grad_bias = [], None, None
        tile = 128 if hidden.is_cuda else 1  # of a matrix product
        at_once = -(-len(hidden) // (tile * n_parts)) * tile
        for i in range(n_parts):
            which = slice(i * at_once, (i + 1) * at_once)
            part = hidden[which]
            scores = part @ narrow.T if narrow_bias is None else torch.addmm(narrow_bias, part, narrow.T)
            if fits(scores):
                losses, grad = cross_entropy(
                    scores, targets[which], vocab_size, ignored=IGNORED, smoothing=smoothing, learns=learns
                )
            else:
                losses, grad = _loss_and_gradient(scores[:, :vocab_size], targets[which], smoothing, learns, wide)
                grad = F.pad(grad, (0, extra)) if extra else grad
            total = total + losses.sum()
            if learns:
                if bias is not None:
                    grad_bias = _plus(grad_bias, grad[:, :vocab_size].sum(0, dtype=wide))
                grad = grad.to(hidden.dtype)
                grads.append(grad @ narrow)
                grad_matrix = _plus(grad_matrix, (grad.T @ part)[:vocab_size].to(wide))
        if learns:
            ctx.save_for_backward(torch.cat(grads) if len(grads) > 1 else grads[0], grad_matrix, grad_bias)
        return total

    @staticmethod
    @once_differentiable  # the gradient comes from the forward pass, and has no gradient of its own
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if grad is None else grad * upstream[0].to(grad.dtype) for grad in ctx.saved_tensors]
        return (*scaled, None, None, None, None)


def _plus(total: Tensor | None, more: Tensor) -> Tensor:
    return more if total is None else total.add_(more)


def _loss_and_gradient(
    scores: Tensor, targets: Tensor, smoothing: float, learns: bool, wide: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The loss of each position, and its gradient at the scores: softmax − target."""
    counted = targets != IGNORED
    at = targets.where(counted, 0)[:, None]
    log_p = scores.log_softmax(-1, dtype=wide)
    loss = (smoothing - 1.0) * log_p.gather(1, at).squeeze(1)
    if smoothing:
        loss = loss - smoothing * log_p.mean(-1)
    loss = loss.masked_fill(~counted, 0.0)
    if not learns:
        return loss, log_p[:0]
    grad = log_p.exp_()  # in place: the scores are not needed again
    if smoothing:
        grad.sub_(smoothing / scores.shape[1])
    grad.scatter_add_(1, at, grad.new_full(at.shape, smoothing - 1.0))
    return loss, grad.masked_fill_(~counted[:, None], 0.0)
