"""Muon (Jordan et al. 2024): the update of a matrix is orthogonalised, so that no direction dominates.

    buffer ← momentum · buffer + (1 − momentum) · gradient
    update = Newton–Schulz(gradient · (1 − momentum) + buffer · momentum),     every singular value near 1

`torch.optim.Muon` updates the matrices one by one, with some hundred small products. Here, matrices of one shape are
stacked and updated together, and a matrix that is several in one (queries, keys and values) is split first.
"""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # the steepest quintic that still brings every singular value near 1


def orthogonalised(x: Float[Tensor, "n rows columns"], steps: int = 5) -> Float[Tensor, "n rows columns"]:
    """UVᵀ of each matrix USVᵀ, nearly: a polynomial of the matrix that pushes its singular values to about 1."""
    a, b, c = COEFFICIENTS
    y = x.bfloat16()
    tall = y.shape[-2] > y.shape[-1]
    y = y.mT if tall else y
    y = y / (y.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7))
    for _ in range(steps):
        gram = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    return (y.mT if tall else y).to(x.dtype)


class Muon(torch.optim.Optimizer):
    """For matrices. `parts` of a group is the number of equal parts into which its matrices are split."""

    def __init__(
        self, groups: Iterable[dict[str, Any]], *, lr: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "parts": 1})
        self.found_inf: Tensor | None = None  # 1: skip this step, as in fused AdamW
        self.grad_scale: Tensor | None = None  # the divisor of gradients, as in fused AdamW

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for parameters in by_shape.values():
                self._step_together(parameters, group)

    def _step_together(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        for parameter in parameters:
            if "momentum" not in self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        buffers = [self.state[parameter]["momentum"] for parameter in parameters]
        if self.grad_scale is not None:
            gradients = list(torch._foreach_div(gradients, self.grad_scale))
        go = 1.0 if self.found_inf is None else 1.0 - self.found_inf  # 0: skip this step
        if self.found_inf is not None:  # the interpolation of a buffer with itself leaves it unchanged
            pairs = zip(buffers, gradients, strict=True)
            gradients = [torch.where(self.found_inf > 0, buffer, gradient) for buffer, gradient in pairs]
        torch._foreach_lerp_(buffers, gradients, 1 - group["momentum"])
        nesterov = torch._foreach_lerp(gradients, buffers, group["momentum"])
        rows, columns = parameters[0].shape
        stacked = torch.stack(nesterov).view(-1, rows // group["parts"], columns)
        update = orthogonalised(stacked).reshape(-1, rows, columns)
        scale = max(1.0, rows / group["parts"] / columns) ** 0.5
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"] * go)
        torch._foreach_add_(parameters, list((update * (-group["lr"] * scale * go)).unbind()))
