"""A linear model, whose attributions are known exactly."""

import torch
from helpers.toy_recipes import still
from torch import Tensor

from cutaway.model.embeddings import Embedding, TokenEmbedding
from cutaway.model.heads import LanguageModelHead
from cutaway.model.model import Model


class LinearModel(Model):
    """Tokens, added up and scored."""

    def __init__(self) -> None:
        super().__init__(still("gpt2").config)
        self.embedding = Embedding(TokenEmbedding(50, 12))
        self.head = LanguageModelHead(12, 50)

    def hidden(self, ids: Tensor) -> Tensor:  # type: ignore[override]
        return self.embedding(ids, torch.zeros_like(ids)).cumsum(dim=1)
