"""What several families do in the same way: choose a head for the task, draw the first weights."""

import torch
from torch import nn

from cutaway.errors import ConfigError
from cutaway.model.config import Config
from cutaway.model.embeddings import TokenEmbedding
from cutaway.model.heads import HiddenStates, LanguageModelHead, LastTokenHead
from cutaway.model.tap import Part


def decoder_head(config: Config, d_model: int, vocab_size: int, tied_to: TokenEmbedding | None) -> Part:
    """The heads of a decoder by itself: next tokens, or classes read off the last token."""
    match config.task:
        case "language_model":
            return LanguageModelHead(d_model, vocab_size, tied_to=tied_to)
        case "classify":
            return LastTokenHead(d_model, config.n_classes or 0)
        case "regress":
            return LastTokenHead(d_model, 1)
        case "hidden":
            return HiddenStates()
    raise ConfigError(f"no head for task={config.task!r}")


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
