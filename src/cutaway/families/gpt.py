"""GPT (Radford et al. 2018): a decoder by itself. Learned positions, post-norm as in 2017, GELU, tied de-embedding.

It is trained to predict the next token, and then fine-tuned with language modelling as an auxiliary objective.
GPT-2 (`gpt2`) is the same network with pre-norm.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from cutaway.families.parts import DecoderOnly, decoder_head, draw_normal, either
from cutaway.model.attention import SelfAttention
from cutaway.model.blocks import Block, post_norm, pre_norm
from cutaway.model.config import Config, check_heads
from cutaway.model.decoder import Decoder
from cutaway.model.embeddings import Embedding, TokenEmbedding
from cutaway.model.feed_forward import FeedForward
from cutaway.model.norms import LayerNorm
from cutaway.model.positions import Learned


@dataclass(frozen=True, kw_only=True)
class GPTConfig(Config):
    family: ClassVar[str] = "gpt"
    tasks: ClassVar[tuple[str, ...]] = ("language_model", "classify", "regress", "hidden")

    task: str = "language_model"
    vocab_size: int = 40478
    max_len: int = 512
    n_layers: int = 12
    d_model: int = 768
    n_heads: int = 12
    d_ff: int = 3072
    activation: str = "gelu_tanh"
    norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float | None = None  # None: as `dropout`
    embedding_dropout: float | None = None  # None: as `dropout`
    tied: bool = True

    def check(self) -> None:
        super().check()
        check_heads(self.d_model, self.n_heads)


SIZES: dict[str, Config] = {"gpt": GPTConfig()}


class GPT(DecoderOnly):
    """`logits = model(ids)`."""

    pre_norm: ClassVar[bool] = False

    def __init__(self, config: GPTConfig) -> None:
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
                    wiring=pre_norm if self.pre_norm else post_norm,
                    dropout=c.dropout,
                )
                for _ in range(c.n_layers)
            ),
            final_norm=norm() if self.pre_norm else None,
        )
        self.head = decoder_head(c, c.d_model, c.vocab_size, tokens if c.tied else None)

    def initialise(self) -> None:
        draw_normal(self, 0.02)
