"""Checks that scores are finite, because the answers of a damaged or overflowing model mean nothing.

The argmax of NaN is a class like any other, and every comparison with NaN is false: without a check, NaN becomes an
answer that looks like a valid one. So everything that returns scores calls `check_scores` first.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.model.model import Model


@torch.no_grad()
def not_finite(model: "Model") -> list[str]:
    """Each tensor with numbers that are not finite, as text: the first of them, where it is, and how many there are."""
    damaged = []
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_floating_point() and not is_finite(tensor):
            odd = ~tensor.isfinite()
            at = odd.nonzero()[0].tolist()
            first = f"{float(tensor[tuple(at)])} at {at}"
            damaged.append(f"{name} holds {first} (not finite: {int(odd.sum()):,} of {tensor.numel():,} numbers)")
    return damaged


def check_scores(model: "Model", *scores: "Tensor | np.ndarray") -> None:
    """Raises an InputError if scores are not finite; it names the tensor of the model that is damaged, if one is."""
    if not all(is_finite(some) for some in scores):
        raise scores_error(model)


def scores_error(model: "Model") -> InputError:
    """The error about scores that are not finite."""
    if damaged := not_finite(model):
        return InputError(f"this model's scores are not finite numbers, because its weights are damaged: {damaged[0]}")
    kind = str(model.dtype).removeprefix("torch.")
    return InputError(
        f"this model's scores are not finite numbers, although its weights are: they grow beyond {kind}"
        + ("; load it in float32" if model.dtype in (torch.float16, torch.bfloat16) else "")
    )


def is_finite(numbers: "Tensor | np.ndarray") -> bool:
    """Whether all numbers are finite."""
    if isinstance(numbers, Tensor):
        return bool(numbers.isfinite().all())
    return bool(np.isfinite(numbers).all())
