"""The translator that Transformers replaced: a bidirectional LSTM as encoder, an LSTM with attention as decoder.

Bahdanau et al. 2015 (RNNsearch), with LSTM cells instead of GRUs. The encoder reads the source in both directions, so
that the two states of each word together have seen all of it. The decoder attends to them (`additive_attention`).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.errors import ConfigError
from cutaway.model.additive_attention import AttentiveLSTM
from cutaway.model.cache import Cache, KeysValues
from cutaway.model.config import Config
from cutaway.model.dropout import Dropout
from cutaway.model.embeddings import Embedding, TokenEmbedding, check_ids
from cutaway.model.heads import HiddenStates, LanguageModelHead
from cutaway.model.lstm import LSTM, Layers, Order, backward_order, draw_weights, forward_order
from cutaway.model.lstm_cache import PreviousStates
from cutaway.model.model import EncoderDecoderModel
from cutaway.model.tap import Part


@dataclass(frozen=True, kw_only=True)
class LSTMTranslatorConfig(Config):
    family: ClassVar[str] = "lstm-translator"
    tasks: ClassVar[tuple[str, ...]] = ("translate", "hidden")

    task: str = "translate"
    vocab_size: int = 8000
    n_encoder_layers: int = 1
    d_model: int = 512  # of embeddings and the decoder's states; each direction of the encoder has half
    dropout: float = 0.3
    tied: bool = True

    def check(self) -> None:
        super().check()
        if self.d_model % 2:
            raise ConfigError(f"d_model={self.d_model} is odd: the two directions of the encoder share it evenly")


SIZES: dict[str, Config] = {"lstm-translator": LSTMTranslatorConfig()}


class Bidirectional(Part):
    """Two layers that read the same text, one of them backwards; their states are concatenated."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.forwards, self.backwards = LSTM(d_model, d_model // 2), LSTM(d_model, d_model // 2)

    def forward(
        self, x: Float[Tensor, "batch source d_model"], there: Order | None, back: Order
    ) -> Float[Tensor, "batch source d_model"]:
        return torch.cat([self.forwards(x, order=there), self.backwards(x, order=back)], dim=-1)


class AttentiveDecoder(Layers[AttentiveLSTM]):
    """The decoder's layer, as `decoder.0`."""

    def remember(self, memory: Float[Tensor, "sentence source d_model"]) -> list[KeysValues]:
        """The keys and values of its attention."""
        return [layer.cross.remember(memory) for layer in self]


class LSTMTranslator(EncoderDecoderModel):
    """`logits = model(source, target)`."""

    decoder: AttentiveDecoder  # type: ignore[assignment]

    def __init__(self, config: LSTMTranslatorConfig) -> None:
        super().__init__(config)
        c = config
        self.vocab_size = c.vocab_size
        target = TokenEmbedding(c.vocab_size, c.d_model, scale=c.d_model**0.5)
        source = TokenEmbedding(c.vocab_size, c.d_model, scale=c.d_model**0.5, tied_to=target)
        self.source_embedding = Embedding(source, dropout=c.dropout)
        self.target_embedding = Embedding(target, dropout=c.dropout)
        self.encoder: Layers[Bidirectional] = Layers(Bidirectional(c.d_model) for _ in range(c.n_encoder_layers))
        self.decoder = AttentiveDecoder([AttentiveLSTM(c.d_model, c.dropout)])
        self.dropout = Dropout(c.dropout)
        self.head: Part = HiddenStates()
        if c.task == "translate":
            self.head = LanguageModelHead(c.d_model, c.vocab_size, tied_to=target if c.tied else None, bias=True)

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        return len(self.decoder), 1, self.decoder[0].cross.d_head

    def encode(
        self, source: Int[Tensor, "batch source"], real: Bool[Tensor, "batch source"] | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        check_ids(source, self.vocab_size, real=real)
        there, back = forward_order(real), backward_order(source, real)
        x = self.source_embedding(source, source)
        for layer in self.encoder:
            x = self.dropout(layer(x, there, back))
        return x

    def decode(
        self,
        ids: Int[Tensor, "batch seq"],
        *,
        memory: Float[Tensor, "sentence source d_model"] | None = None,
        memory_real: Bool[Tensor, "sentence source"] | None = None,
        real: Bool[Tensor, "batch seq"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        check_ids(ids, self.vocab_size, real=real)
        across = self.across(len(ids), memory, memory_real, cache)  # may raise, so before the cache is written to
        memory_keys_values, mask = across["memory"][0], across["memory_mask"]
        x = self.target_embedding(ids, ids)
        if cache is None:
            return self.decoder[0](x, memory_keys_values, mask, order=forward_order(real))
        past = PreviousStates(self.step(ids, real, None, cache), cache, ids.shape[1])
        return self.decoder[0](x, memory_keys_values, mask, past=past)

    def initialise(self) -> None:
        draw_weights(self)
