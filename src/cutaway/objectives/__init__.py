"""What a model is trained to do: the next token, masked tokens, a translation, a label. One file each.

loss = next_token_loss(model, ids)
"""

from cutaway.objectives.loss import IGNORED, summed_cross_entropy, token_loss
from cutaway.objectives.next_token import NextToken, next_token_loss
from cutaway.objectives.objective import Objective, as_tensors, mean_loss

__all__ = [
    "IGNORED",
    "NextToken",
    "Objective",
    "as_tensors",
    "mean_loss",
    "next_token_loss",
    "summed_cross_entropy",
    "token_loss",
]
