"""Heads: what turns the final hidden states into scores.

De-embedding is a matrix whose dot products with a hidden state score every token; often it is the embedding matrix
itself (tied weights, Press & Wolf 2017). The other heads read one hidden state per sequence, or each one by itself.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cutaway.model.embeddings import TokenMatrix
from cutaway.model.feed_forward import activation_named
from cutaway.model.kernels.linear import linear
from cutaway.model.tap import Part

Hidden = Float[Tensor, "batch seq d_model"]
Real = Bool[Tensor, "batch seq"] | None


def first_state(hidden: Hidden, real: Real = None) -> Float[Tensor, "batch d_model"]:
    """The hidden state of the first real token."""
    if real is None:
        return hidden[:, 0]
    return hidden[torch.arange(len(hidden), device=hidden.device), real.int().argmax(dim=1)]


def mean_state(hidden: Hidden, real: Real = None) -> Float[Tensor, "batch d_model"]:
    """The mean of the real tokens' hidden states (Sentence-BERT, Reimers & Gurevych 2019); zeros if there are none."""
    if real is None:
        return hidden.mean(dim=1)
    return (hidden * real[:, :, None]).sum(dim=1) / real.sum(dim=1, keepdim=True).clamp(min=1)


class Pooler(Part):
    """The first token's hidden state ([CLS]) through one more layer: the sequence as one vector."""

    taps = {"output": "the sequence as one vector"}

    def __init__(self, d_model: int, *, activation: str = "tanh", dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout, self.dense = nn.Dropout(dropout), nn.Linear(d_model, d_model)
        self.activation = activation_named(activation)

    def forward(self, hidden: Hidden, real: Real = None) -> Float[Tensor, "batch d_model"]:
        return self.tap("output", self.activation(self.dense(self.dropout(first_state(hidden, real)))))


class HiddenStates(Part):
    """No head: the hidden states themselves. With BERT's pooler, `head.pool` gives the sequence as one vector."""

    def __init__(self, pool: Pooler | None = None) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, hidden: Hidden, real: Real = None) -> Hidden:
        return hidden


class LanguageModelHead(TokenMatrix):
    """De-embedding: a score (logit) for every token of the vocabulary at every position."""

    taps = {"logits": "the score of every token"}

    def __init__(
        self,
        d_model: int,
        vocab_size: int,
        *,
        tied_to: TokenMatrix | None = None,
        bias: bool = False,
        scale: float = 1.0,
    ) -> None:
        super().__init__(vocab_size, d_model, tied_to=tied_to)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None
        self.scale = scale

    def forward(self, hidden: Float[Tensor, "*batch d_model"], real: Real = None) -> Float[Tensor, "*batch vocab"]:
        hidden = hidden if self.scale == 1.0 else hidden * self.scale
        return self.tap("logits", linear(hidden, self.matrix, self.bias))


class MaskedLanguageModelHead(Part):
    """BERT's head for masked tokens: one more layer with its norm, then a score for every token."""

    taps = {"transformed": "the hidden state as the de-embedding reads it"}

    def __init__(self, d_model: int, activation: str, norm: Part, words: LanguageModelHead) -> None:
        super().__init__()
        self.dense, self.norm, self.words = nn.Linear(d_model, d_model), norm, words
        self.activation = activation_named(activation)

    def transform(self, hidden: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The hidden state as the de-embedding reads it."""
        return self.tap("transformed", self.norm(self.activation(self.dense(hidden))))

    def forward(self, hidden: Float[Tensor, "*batch d_model"], real: Real = None) -> Float[Tensor, "*batch vocab"]:
        return self.words(self.transform(hidden))


class First(Part):
    """The first token's hidden state."""

    def forward(self, hidden: Hidden, real: Real = None) -> Float[Tensor, "batch d_model"]:
        return first_state(hidden, real)


class Mean(Part):
    """The mean of the tokens' hidden states."""

    def forward(self, hidden: Hidden, real: Real = None) -> Float[Tensor, "batch d_model"]:
        return mean_state(hidden, real)


class ClassificationHead(Part):
    """A score per class for a sentence, a pair of sentences or an image; for regression, one number."""

    taps = {"logits": "the score of every class"}

    def __init__(self, pool: Part, d_model: int, n_classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.pool, self.dropout, self.classes = pool, nn.Dropout(dropout), nn.Linear(d_model, n_classes)

    def forward(self, hidden: Hidden, real: Real = None) -> Float[Tensor, "batch n_classes"]:
        return self.tap("logits", self.classes(self.dropout(self.pool(hidden, real))))


class LastTokenHead(Part):
    """A score per class, read off the last real token, which alone has seen the whole sequence in a decoder."""

    taps = {"logits": "the score of every class"}

    def __init__(self, d_model: int, n_classes: int) -> None:
        super().__init__()
        self.classes = nn.Linear(d_model, n_classes, bias=False)

    def forward(self, hidden: Hidden, real: Real = None) -> Float[Tensor, "batch n_classes"]:
        if real is None:
            return self.tap("logits", self.classes(hidden[:, -1]))
        index = torch.arange(real.shape[1], device=real.device)
        last = (index * real).amax(dim=1)
        return self.tap("logits", self.classes(hidden[torch.arange(len(hidden), device=real.device), last]))


class TaggingHead(Part):
    """A score per class for every token: named entities, parts of speech."""

    taps = {"logits": "the score of every class for every token"}

    def __init__(self, d_model: int, n_classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout, self.classes = nn.Dropout(dropout), nn.Linear(d_model, n_classes)

    def forward(self, hidden: Hidden, real: Real = None) -> Float[Tensor, "batch seq n_classes"]:
        return self.tap("logits", self.classes(self.dropout(hidden)))


class NextSentenceHead(Part):
    """BERT's second objective: does the second sentence follow the first? Class 0 is yes, class 1 is no."""

    taps = {"logits": "the scores of «it follows» and «it does not»"}

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.pool, self.classes = Pooler(d_model), nn.Linear(d_model, 2)

    def forward(self, hidden: Hidden, real: Real = None) -> Float[Tensor, "batch 2"]:
        return self.tap("logits", self.classes(self.pool(hidden, real)))


class PretrainingHead(Part):
    """Both objectives of BERT's pre-training: a call scores masked tokens, `head.next_sentence` scores the pair."""

    def __init__(self, masked: MaskedLanguageModelHead, next_sentence: NextSentenceHead) -> None:
        super().__init__()
        self.masked, self.next_sentence = masked, next_sentence

    def forward(self, hidden: Hidden, real: Real = None) -> Float[Tensor, "batch seq vocab"]:
        return self.masked(hidden)
