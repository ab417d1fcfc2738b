"""T5 (Raffel et al. 2020): an encoder–decoder for which every task is text to text.

Positions are a learned bias on the scores for each distance, shared by all blocks; RMSNorm before each sub-layer; no
other biases; scores are not divided by √d_head, because the first weights of the queries are drawn smaller instead.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cutaway.errors import ConfigError
from cutaway.model.attention import CrossAttention, SelfAttention
from cutaway.model.blocks import Block, pre_norm
from cutaway.model.cache import Cache
from cutaway.model.config import Config
from cutaway.model.decoder import Decoder
from cutaway.model.embeddings import Embedding, TokenEmbedding, check_ids
from cutaway.model.encoder import Encoder
from cutaway.model.feed_forward import FeedForward, GatedFeedForward
from cutaway.model.heads import HiddenStates, LanguageModelHead
from cutaway.model.masks import padding_mask
from cutaway.model.model import EncoderDecoderModel
from cutaway.model.norms import RMSNorm
from cutaway.model.positions import RelativeBias, positions_of
from cutaway.model.tap import Part


@dataclass(frozen=True, kw_only=True)
class T5Config(Config):
    family: ClassVar[str] = "t5"
    tasks: ClassVar[tuple[str, ...]] = ("translate", "hidden")

    task: str = "translate"
    vocab_size: int = 32128
    n_encoder_layers: int = 12
    n_decoder_layers: int = 12
    d_model: int = 768
    n_heads: int = 12
    d_head: int = 64
    d_ff: int = 3072
    activation: str = "relu"
    gated: bool = False
    n_buckets: int = 32
    max_distance: int = 128
    norm_eps: float = 1e-6
    dropout: float = 0.1
    tied: bool = True
    scale_output: bool = True  # logits of hidden states · 1/√d_model; not in v1.1

    def check(self) -> None:
        super().check()
        if self.n_buckets < 4 or self.n_buckets % 4:
            raise ConfigError(f"n_buckets={self.n_buckets} is not a multiple of 4: near and far, before and after")
        if self.max_distance <= self.n_buckets // 2:
            raise ConfigError(f"max_distance={self.max_distance} leaves nothing far for n_buckets={self.n_buckets}")


SIZES: dict[str, Config] = {
    "t5-small": T5Config(n_encoder_layers=6, n_decoder_layers=6, d_model=512, n_heads=8, d_ff=2048),
    "t5-base": T5Config(),
    "t5-large": T5Config(n_encoder_layers=24, n_decoder_layers=24, d_model=1024, n_heads=16, d_ff=4096),
    "t5-v1.1-small": T5Config(
        n_encoder_layers=8,
        n_decoder_layers=8,
        d_model=512,
        n_heads=6,
        d_ff=1024,
        activation="gelu_tanh",
        gated=True,
        tied=False,
        scale_output=False,
    ),
    "t5-v1.1-base": T5Config(d_ff=2048, activation="gelu_tanh", gated=True, tied=False, scale_output=False),
}


class T5(EncoderDecoderModel):
    """`logits = model(source, target)`."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        c = config
        self.vocab_size = c.vocab_size
        target = TokenEmbedding(c.vocab_size, c.d_model)
        source = TokenEmbedding(c.vocab_size, c.d_model, tied_to=target)
        self.source_embedding = Embedding(source, dropout=c.dropout)
        self.target_embedding = Embedding(target, dropout=c.dropout)
        bias = partial(RelativeBias, c.n_heads, n_buckets=c.n_buckets, max_distance=c.max_distance)
        self.source_bias, self.target_bias = bias(both_ways=True), bias(both_ways=False)
        norm = partial(RMSNorm, c.d_model, eps=c.norm_eps)
        self.encoder = Encoder((block(c) for _ in range(c.n_encoder_layers)), final_norm=norm())
        self.decoder = Decoder((block(c, across=True) for _ in range(c.n_decoder_layers)), final_norm=norm())
        self.dropout = nn.Dropout(c.dropout)  # also applied to the output of each stack
        self.head: Part = HiddenStates()
        if c.task == "translate":
            scale = c.d_model**-0.5 if c.scale_output else 1.0
            self.head = LanguageModelHead(c.d_model, c.vocab_size, tied_to=target if c.tied else None, scale=scale)

    def encode(
        self, source: Int[Tensor, "batch source"], real: Bool[Tensor, "batch source"] | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        check_ids(source, self.vocab_size, real=real)
        positions = positions_of(source, real)
        x = self.source_embedding(source, positions)
        return self.dropout(self.encoder(x, padding_mask(real), bias=self.source_bias(positions, positions)))

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
        step = self.step(ids, real, None, cache)
        bias = self.target_bias(step.query_positions, step.key_positions)
        x = self.target_embedding(ids, step.positions)
        return self.dropout(self.decoder(x, step, bias=bias, **across))

    @torch.no_grad()
    def initialise(self) -> None:
        """Normal with standard deviation 1/√(width of the input); queries also · 1/√d_head, which the scores lack."""
        d_model = self.target_embedding.tokens.matrix.shape[1]
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)
            elif "embedding" in name or name.startswith("head"):
                parameter.normal_(0.0, 1.0)
            elif "_bias" in name:
                parameter.normal_(0.0, d_model**-0.5)
            else:
                parameter.normal_(0.0, parameter.shape[1] ** -0.5)
        for stack in (self.encoder, self.decoder):
            for part in (part for block in stack for part in (block.attention, block.cross) if part is not None):
                queries = part.query_key_value if isinstance(part, SelfAttention) else part.query
                queries.weight[: part.n_heads * part.d_head] *= part.d_head**-0.5


def block(c: T5Config, *, across: bool = False) -> Block:
    feed_forward = GatedFeedForward if c.gated else FeedForward
    cross = None
    if across:
        cross = CrossAttention(c.d_model, c.n_heads, d_head=c.d_head, bias=False, scale=1.0, dropout=c.dropout)
    return Block(
        SelfAttention(c.d_model, c.n_heads, d_head=c.d_head, bias=False, scale=1.0, dropout=c.dropout),
        feed_forward(c.d_model, c.d_ff, c.activation, bias=False, dropout=c.dropout),
        cross=cross,
        norm=partial(RMSNorm, c.d_model, eps=c.norm_eps),
        wiring=pre_norm,
        dropout=c.dropout,
    )
