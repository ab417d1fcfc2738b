"""Models for minimal pairs, and their scores by hand."""

import torch
from helpers.bert_tokenizer import bert_tokenizer
from helpers.tiny_models import tiny
from tokenizers import AddedToken
from torch import Tensor

from cutaway.model.model import Model
from cutaway.tokens import Tokenizer


def writer(name: str = "llama", **changes) -> Model:
    return tiny(name, **{"vocab_size": 400, "max_len": 64, **changes})


def by_hand(model: Model, ids: list[int], first: int) -> float:
    """log p of ids[first:], one forward pass, one token after the other."""
    scores = model(torch.tensor([ids[:-1]]))[0].log_softmax(dim=-1)
    return sum(scores[place - 1, ids[place]].item() for place in range(first, len(ids)))


def hiding() -> Tokenizer:
    words = "[UNK] a man sleeps he is awake the dog ##s runs no one saw it".split()
    return bert_tokenizer(words, AddedToken("[MASK]"))


class Knows(torch.nn.Module):
    """A head that has learnt one rule: behind a plural stands no «sleeps», behind a singular no «sleep»."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def forward(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return hidden[..., : self.n]
