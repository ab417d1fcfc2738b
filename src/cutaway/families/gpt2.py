"""GPT-2 (Radford et al. 2019): a decoder by itself that predicts the next token.

Learned positions, pre-norm, GELU, and the embedding matrix once more as de-embedding.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.families.parts import decoder_head, draw_normal, either
from cutaway.model.attention import SelfAttention
from cutaway.model.blocks import Block, pre_norm
from cutaway.model.cache import Cache
from cutaway.model.config import Config, check_heads
from cutaway.model.decoder import Decoder
from cutaway.model.embeddings import Embedding, TokenEmbedding, check_ids
from cutaway.model.feed_forward import FeedForward
from cutaway.model.model import DecoderModel
from cutaway.model.norms import LayerNorm
from cutaway.model.positions import Learned


@dataclass(frozen=True, kw_only=True)
class GPT2Config(Config):
    family: ClassVar[str] = "gpt2"
    tasks: ClassVar[tuple[str, ...]] = ("language_model", "classify", "regress", "hidden")

    task: str = "language_model"
    vocab_size: int = 50257
    max_len: int = 1024
    n_layers: int = 12
    d_model: int = 768
    n_heads: int = 12
    d_ff: int = 3072
    activation: str = "gelu_tanh"
    norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float | None = None  # None: as elsewhere
    embedding_dropout: float | None = None  # None: as elsewhere
    tied: bool = True

    def check(self) -> None:
        super().check()
        check_heads(self.d_model, self.n_heads)


SIZES: dict[str, Config] = {
    "gpt2": GPT2Config(),
    "gpt2-medium": GPT2Config(n_layers=24, d_model=1024, n_heads=16, d_ff=4096),
    "gpt2-large": GPT2Config(n_layers=36, d_model=1280, n_heads=20, d_ff=5120),
    "gpt2-xl": GPT2Config(n_layers=48, d_model=1600, n_heads=25, d_ff=6400),
}


class GPT2(DecoderModel):
    """`logits = model(ids)`."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        c = config
        self.max_len, self.vocab_size = c.max_len, c.vocab_size
        norm = partial(LayerNorm, c.d_model, eps=c.norm_eps)
        tokens = TokenEmbedding(c.vocab_size, c.d_model)
        self.embedding = Embedding(
            tokens, positions=Learned(c.max_len, c.d_model), dropout=either(c.embedding_dropout, c.dropout)
        )
        self.decoder = Decoder(
            (
                Block(
                    SelfAttention(c.d_model, c.n_heads, dropout=either(c.attention_dropout, c.dropout)),
                    FeedForward(c.d_model, c.d_ff, c.activation),
                    norm=norm,
                    wiring=pre_norm,
                    dropout=c.dropout,
                )
                for _ in range(c.n_layers)
            ),
            final_norm=norm(),
        )
        self.head = decoder_head(c, c.d_model, c.vocab_size, tokens if c.tied else None)

    def hidden(  # type: ignore[override]
        self,
        ids: Int[Tensor, "batch seq"],
        *,
        real: Bool[Tensor, "batch seq"] | None = None,
        documents: Int[Tensor, "batch seq"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        check_ids(ids, self.vocab_size, real=real)
        step = self.step(ids, real, documents, cache)
        return self.decoder(self.embedding(ids, step.positions), step)

    @torch.no_grad()
    def initialise(self) -> None:
        """Normal with 0.02; what is written to the stream is scaled down by √(number of writes)."""
        draw_normal(self, 0.02)
        n_writes = 2 * len(self.decoder)
        for block in self.decoder:
            block.attention.output.weight /= n_writes**0.5
            block.feed_forward.down.weight /= n_writes**0.5
