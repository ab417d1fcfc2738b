"""The LSTM language model (Mikolov et al. 2010, with the cell of Hochreiter & Schmidhuber).

The next token is predicted from the last state. Everything that was read has to fit into it; nothing can be looked up.
No positions are added, because a recurrence reads in order; so there is no maximum length.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.families.parts import decoder_head
from cutaway.model.cache import Cache
from cutaway.model.config import Config
from cutaway.model.dropout import Dropout
from cutaway.model.embeddings import Embedding, TokenEmbedding, check_ids, check_like
from cutaway.model.lstm import LSTM, Layers, draw_weights, forward_order
from cutaway.model.lstm_cache import PreviousStates
from cutaway.model.masks import document_starts
from cutaway.model.model import DecoderModel


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(Config):
    family: ClassVar[str] = "lstm"
    tasks: ClassVar[tuple[str, ...]] = ("language_model", "classify", "regress", "hidden")

    task: str = "language_model"
    vocab_size: int = 8000
    n_layers: int = 2
    d_model: int = 512  # of embeddings, states and cells
    dropout: float = 0.2  # between layers, not between steps (Zaremba et al. 2014)
    tied: bool = True


SIZES: dict[str, Config] = {"lstm": LSTMConfig()}


class LSTMModel(DecoderModel):
    """`logits = model(ids)`."""

    decoder: Layers[LSTM]  # type: ignore[assignment]

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__(config)
        c = config
        self.vocab_size = c.vocab_size
        tokens = TokenEmbedding(c.vocab_size, c.d_model, scale=c.d_model**0.5)
        self.embedding = Embedding(tokens, dropout=c.dropout)
        self.decoder = Layers(LSTM(c.d_model, c.d_model) for _ in range(c.n_layers))
        self.dropout = Dropout(c.dropout)
        self.head = decoder_head(c, c.d_model, c.vocab_size, tokens if c.tied else None)

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        return len(self.decoder), 1, self.decoder[0].d_out

    def hidden(  # type: ignore[override]
        self,
        ids: Int[Tensor, "batch seq"],
        *,
        real: Bool[Tensor, "batch seq"] | None = None,
        documents: Int[Tensor, "batch seq"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        check_ids(ids, self.vocab_size, real=real)
        if cache is not None:
            return self._hidden_with_cache(ids, real, documents, cache)
        check_like("documents", documents, ids, "int")
        order = forward_order(real)
        starts = None
        if documents is not None:
            in_order = documents if order is None else documents.scatter(1, order, documents)
            starts = document_starts(in_order)
        x = self.embedding(ids, ids)
        for layer in self.decoder:
            x = self.dropout(layer(x, order=order, starts=starts))
        return x

    def _hidden_with_cache(
        self,
        ids: Int[Tensor, "batch seq"],
        real: Bool[Tensor, "batch seq"] | None,
        documents: Int[Tensor, "batch seq"] | None,
        cache: Cache,
    ) -> Float[Tensor, "batch seq d_model"]:
        past = PreviousStates(self.step(ids, real, documents, cache), cache, ids.shape[1])
        x = self.embedding(ids, ids)
        for number, layer in enumerate(self.decoder):
            empty = x.new_zeros(cache.batch, layer.d_out, dtype=self.dtype)
            history = past.run(number, layer.from_input(x), (empty, empty), layer.step)
            layer.tap_history(history)
            x = self.dropout(past.packed(torch.cat([turn.state for turn in history], dim=1)))
        return x

    def initialise(self) -> None:
        draw_weights(self)
