"""Heads: what is read off the hidden states. A body gives hidden states; each head is a part of its own.

De-embedding is a matrix whose dot products with a hidden state score every token; often it is the embedding itself
(tied weights, Press & Wolf 2017). The other heads read one state per sequence, or each state by itself.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cutaway.errors import ConfigError
from cutaway.model.config import Config
from cutaway.model.embeddings import TokenEmbedding, TokenMatrix
from cutaway.model.feed_forward import activation_named
from cutaway.model.kernels.linear import linear
from cutaway.model.tap import Part

Hidden = Float[Tensor, "batch seq d_model"]
Real = Bool[Tensor, "batch seq"] | None


def first_state(hidden: Hidden, real: Real = None) -> Float[Tensor, "batch d_model"]:
    """The state of the first real token, which is the first of all unless padding stands on the left."""
    if real is None:
        return hidden[:, 0]
    return hidden[torch.arange(len(hidden), device=hidden.device), real.int().argmax(dim=1)]


def mean_state(hidden: Hidden, real: Real = None) -> Float[Tensor, "batch d_model"]:
    """The mean of the real tokens' states (Reimers & Gurevych 2019, Sentence-BERT); of a row without any, zeros."""
    if real is None:
        return hidden.mean(dim=1)
    return (hidden * real[:, :, None]).sum(dim=1) / real.sum(dim=1, keepdim=True).clamp(min=1)


class Pooler(Part):
    """The first token's state ([CLS]) through one more layer: the sequence as one vector."""

    taps = {"output": "the sequence as one vector"}

    def __init__(self, d_model: int, *, activation: str = "tanh", dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout, self.dense = nn.Dropout(dropout), nn.Linear(d_model, d_model)
        self.activation = activation_named(activation)

    def forward(self, hidden: Hidden, real: Real = None) -> Float[Tensor, "batch d_model"]:
        return self.tap("output", self.activation(self.dense(self.dropout(first_state(hidden, real)))))


class HiddenStates(Part):
    """No head: the hidden states themselves. BERT's body brings a pooler along, which is asked by name."""

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
    """BERT's: one more layer with its norm, then a score for every token."""

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
    """The first token's state as it is."""

    def forward(self, hidden: Hidden, real: Real = None) -> Float[Tensor, "batch d_model"]:
        return first_state(hidden, real)


class Mean(Part):
    """The mean of all tokens' states as it is."""

    def forward(self, hidden: Hidden, real: Real = None) -> Float[Tensor, "batch d_model"]:
        return mean_state(hidden, real)


class ClassificationHead(Part):
    """A score per class for the whole sequence, or one number for regression: [CLS], sentence, pair, image."""

    taps = {"logits": "the score of every class"}

    def __init__(self, pool: Part, d_model: int, n_classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.pool, self.dropout, self.classes = pool, nn.Dropout(dropout), nn.Linear(d_model, n_classes)

    def forward(self, hidden: Hidden, real: Real = None) -> Float[Tensor, "batch n_classes"]:
        return self.tap("logits", self.classes(self.dropout(self.pool(hidden, real))))


class LastTokenHead(Part):
    """A score per class read off the last real token, the only one of a decoder that has seen everything."""

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
    """BERT's second question: does the second sentence follow the first? Class 0 says yes, class 1 says no."""

    taps = {"logits": "the scores of «it follows» and «it does not»"}

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.pool, self.classes = Pooler(d_model), nn.Linear(d_model, 2)

    def forward(self, hidden: Hidden, real: Real = None) -> Float[Tensor, "batch 2"]:
        return self.tap("logits", self.classes(self.pool(hidden, real)))


class PretrainingHead(Part):
    """Both questions of BERT's pre-training. The forward pass answers the first; `next_sentence` is asked by name."""

    def __init__(self, masked: MaskedLanguageModelHead, next_sentence: NextSentenceHead) -> None:
        super().__init__()
        self.masked, self.next_sentence = masked, next_sentence

    def forward(self, hidden: Hidden, real: Real = None) -> Float[Tensor, "batch seq vocab"]:
        return self.masked(hidden)


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
