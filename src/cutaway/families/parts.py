"""What several families do in the same way: choose a head for the task, draw the first weights."""

import torch
from torch import nn

from cutaway.model.heads import decoder_head as decoder_head


def either(special: float | None, usual: float) -> float:
    """A number of its own where there is one."""
    return usual if special is None else special


@torch.no_grad()
def draw_normal(model: nn.Module, std: float) -> None:
    """Matrices normal with `std`, biases 0, norms 1: GPT-2's and BERT's beginning."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
        elif parameter.ndim == 1 and "norm" in name:
            parameter.fill_(1.0)
        else:
            parameter.normal_(0.0, std)
