"""What a model is trained to do: the next token, the hidden words, a translation, a label.

loss = next_token_loss(model, ids)
"""

from cutaway.objectives.classify import Labels
from cutaway.objectives.images import Changes, Pictures
from cutaway.objectives.loss import IGNORED, summed_cross_entropy, token_loss
from cutaway.objectives.masked import Hiding, Masked, Pretraining
from cutaway.objectives.next_token import NextToken, next_token_loss
from cutaway.objectives.objective import Objective, as_tensors, mean_loss
from cutaway.objectives.spans import SpanCorruption
from cutaway.objectives.translation import Translation

__all__ = [
    "IGNORED",
    "Changes",
    "Hiding",
    "Labels",
    "Masked",
    "NextToken",
    "Objective",
    "Pictures",
    "Pretraining",
    "SpanCorruption",
    "Translation",
    "as_tensors",
    "mean_loss",
    "next_token_loss",
    "summed_cross_entropy",
    "token_loss",
]
