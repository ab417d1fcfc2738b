"""Scores that are no numbers are not handed on: what a damaged or overgrown model says means nothing.

A softmax over NaN is NaN, but its argmax is a class, the mean of a perplexity is cut off at e⁷⁰⁰, and what is greater
than NaN is nothing: each turns it into an answer that looks like one. So whoever hands scores on asks `check_scores`.
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
    """The tensors of a model that hold a number that is not finite, each with how many, and where the first is."""
    found = []
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_floating_point() and not is_finite(tensor):
            odd = ~tensor.isfinite()
            at = odd.nonzero()[0].tolist()
            first = f"{float(tensor[tuple(at)])} at {at}"
            found.append(f"{name} holds {first} (not finite: {int(odd.sum()):,} of {tensor.numel():,} numbers)")
    return found


def check_scores(model: "Model", *scores: "Tensor | np.ndarray") -> None:
    """Refuses scores that are not finite, and says which tensor of the model is to blame, if one is."""
    if all(is_finite(some) for some in scores):
        return
    raise no_numbers(model)


def no_numbers(model: "Model") -> InputError:
    """The error for scores that are not finite."""
    if damaged := not_finite(model):
        return InputError(f"this model's scores are not finite numbers, because its weights are damaged: {damaged[0]}")
    kind = str(model.dtype).removeprefix("torch.")
    return InputError(
        f"this model's scores are not finite numbers, although its weights are: they grow beyond {kind}"
        + ("; load it in float32" if model.dtype in (torch.float16, torch.bfloat16) else "")
    )


def is_finite(numbers: "Tensor | np.ndarray") -> bool:
    """Whether all are."""
    if isinstance(numbers, Tensor):
        return bool(numbers.isfinite().all())
    return bool(np.isfinite(numbers).all())
