"""Cross-entropy: how surprised the model was by what really came, −log p(target), summed over the targets.

Losses are sums here. The training step divides by the real targets of the whole step, so that neither padding nor the
way a step is cut into parts changes what is learnt.

The scores of every token at every position are the largest thing in a model (32 × 1024 positions × 50,000 tokens are
6.6 GB). They need never exist at once: `summed_cross_entropy` makes them for a few positions at a time, takes the loss
and its gradient, softmax − target, from them, and forgets them.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.model.heads import LanguageModelHead, MaskedLanguageModelHead
from cutaway.model.tap import Part

IGNORED = -100  # a target that does not count: padding, a token that was not hidden


def token_loss(
    head: Part, hidden: Float[Tensor, "*batch d_model"], targets: Int[Tensor, "*batch"], *, smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """The summed loss of a head that scores the vocabulary. Somebody who watches the scores gets to see them all."""
    if isinstance(head, MaskedLanguageModelHead):
        return token_loss(head.words, head.transform(hidden), targets, smoothing=smoothing)
    if not isinstance(head, LanguageModelHead) or head.reads("logits") or head.edits("logits"):
        return class_loss(head(hidden), targets, smoothing=smoothing)
    return summed_cross_entropy(hidden * head.scale, head.matrix, targets, bias=head.bias, smoothing=smoothing)


def class_loss(
    scores: Float[Tensor, "*batch n"], targets: Int[Tensor, "*batch"], *, smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """The summed loss of scores that are there already."""
    scores = scores.flatten(0, -2)
    scores = scores if scores.dtype == torch.float64 else scores.float()
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
    if not hidden.is_meta and torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    hidden, targets = hidden.flatten(0, -2), targets.flatten()
    if at_once is None:
        at_once = max(64, (1 << (28 if hidden.is_cuda else 24)) // len(matrix))
    matrix = matrix.to(hidden.dtype)
    return _SummedCrossEntropy.apply(hidden, matrix, bias, targets, smoothing, at_once)


class _SummedCrossEntropy(torch.autograd.Function):
    """Forward takes the gradient along, because making the scores a second time would cost a third more."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, matrix: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, at_once: int
    ) -> Tensor:
        wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        learns = any(ctx.needs_input_grad[:3])
        grad_hidden = torch.empty_like(hidden) if learns else None
        grad_matrix = torch.zeros_like(matrix, dtype=wide) if learns else None
        grad_bias = torch.zeros_like(bias, dtype=wide) if learns and bias is not None else None
        total = torch.zeros((), dtype=wide, device=hidden.device)
        for start in range(0, len(hidden), at_once):
            part = slice(start, start + at_once)
            scores = (hidden[part] @ matrix.T).to(wide)
            if bias is not None:
                scores = scores + bias
            loss, grad = _one_part(scores, targets[part], smoothing, learns)
            total = total + loss
            if grad is not None and grad_hidden is not None and grad_matrix is not None:
                narrow = grad.to(hidden.dtype)
                grad_hidden[part] = narrow @ matrix
                grad_matrix += narrow.T @ hidden[part]
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
        if learns:
            ctx.save_for_backward(grad_hidden, grad_matrix, grad_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if grad is None else grad * upstream[0].to(grad.dtype) for grad in ctx.saved_tensors]
        return (*scaled, None, None, None)


def _one_part(scores: Tensor, targets: Tensor, smoothing: float, learns: bool) -> tuple[Tensor, Tensor | None]:
    """The loss of some positions, and its gradient at their scores: softmax − target."""
    counted = targets != IGNORED
    at = targets.where(counted, 0)[:, None]
    log_sum = scores.logsumexp(-1)
    loss = log_sum - (1 - smoothing) * scores.gather(1, at).squeeze(1)
    if smoothing:
        loss = loss - smoothing * scores.mean(-1)
    loss = loss.masked_fill(~counted, 0.0).sum()
    if not learns:
        return loss, None
    grad = scores.sub_(log_sum[:, None]).exp_()  # in place: the scores are not needed again
    if smoothing:
        grad.sub_(smoothing / scores.shape[1])
    grad.scatter_add_(1, at, grad.new_full(at.shape, smoothing - 1.0))
    return loss, grad.masked_fill_(~counted[:, None], 0.0)
