"""The Transformer of 2017 (Vaswani et al., Attention Is All You Need): an encoder reads, a decoder writes.

Sinusoidal positions, post-norm, ReLU, one embedding matrix for source, target and output, scaled by √d_model.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cutaway.errors import ConfigError
from cutaway.model.attention import CrossAttention, SelfAttention
from cutaway.model.blocks import Block, post_norm, pre_norm
from cutaway.model.cache import Cache
from cutaway.model.config import Config, check_heads
from cutaway.model.decoder import Decoder
from cutaway.model.embeddings import Embedding, TokenEmbedding, check_ids
from cutaway.model.encoder import Encoder
from cutaway.model.feed_forward import FeedForward
from cutaway.model.heads import HiddenStates, LanguageModelHead
from cutaway.model.masks import padding_mask
from cutaway.model.model import EncoderDecoderModel
from cutaway.model.norms import LayerNorm
from cutaway.model.positions import Learned, Rotary, Sinusoidal, SinusoidalHalves, positions_of
from cutaway.model.tap import Part

WIRINGS = {"post_norm": post_norm, "pre_norm": pre_norm}
POSITIONS: dict[str, type[Learned] | type[Sinusoidal]] = {
    "sinusoidal": Sinusoidal,
    "sinusoidal_halves": SinusoidalHalves,
    "learned": Learned,
}


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(Config):
    family: ClassVar[str] = "transformer"
    tasks: ClassVar[tuple[str, ...]] = ("translate", "hidden")

    task: str = "translate"
    vocab_size: int = 37000
    source_vocab_size: int | None = None  # None: one vocabulary and one embedding matrix for source and target
    max_len: int = 1024
    n_encoder_layers: int = 6
    n_decoder_layers: int = 6
    d_model: int = 512
    n_heads: int = 8
    d_ff: int = 2048
    n_decoder_heads: int | None = None  # None: as in the encoder
    decoder_d_ff: int | None = None  # None: as in the encoder
    activation: str = "relu"
    positions: str = "sinusoidal"  # or sinusoidal_halves (Marian's order), learned, rotary, none
    wiring: str = "post_norm"
    scale_embedding: bool = True
    norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.0
    tied: bool = True
    output_bias: bool = False

    def check(self) -> None:
        super().check()
        check_heads(self.d_model, self.n_heads)
        check_heads(self.d_model, self.heads_of("decoder"), "n_decoder_heads")
        if self.wiring not in WIRINGS:
            raise ConfigError(f"wiring={self.wiring!r} is not one of {', '.join(WIRINGS)}")
        if self.positions not in (*POSITIONS, "rotary", "none"):
            raise ConfigError(f"positions={self.positions!r} is not one of {', '.join(POSITIONS)}, rotary, none")

    def heads_of(self, side: str) -> int:
        """The number of heads in the encoder or the decoder."""
        return self.n_heads if side == "encoder" else self.n_decoder_heads or self.n_heads

    def d_ff_of(self, side: str) -> int:
        return self.d_ff if side == "encoder" else self.decoder_d_ff or self.d_ff


SIZES: dict[str, Config] = {
    "transformer-tiny": TransformerConfig(
        n_encoder_layers=2, n_decoder_layers=2, d_model=128, n_heads=4, d_ff=512, vocab_size=8000
    ),
    "transformer-small": TransformerConfig(
        n_encoder_layers=4, n_decoder_layers=4, d_model=256, n_heads=4, d_ff=1024, vocab_size=16000
    ),
    "transformer-base": TransformerConfig(),
    "transformer-big": TransformerConfig(d_model=1024, n_heads=16, d_ff=4096, dropout=0.3),
}


class Transformer(EncoderDecoderModel):
    """`logits = model(source, target)`."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        c = config
        self.max_len, self.vocab_size = c.max_len, c.vocab_size
        self.source_vocab_size = c.source_vocab_size or c.vocab_size
        scale = c.d_model**0.5 if c.scale_embedding else 1.0
        target = TokenEmbedding(c.vocab_size, c.d_model, scale=scale)
        shared = target if c.source_vocab_size is None else None
        source = TokenEmbedding(self.source_vocab_size, c.d_model, scale=scale, tied_to=shared)
        self.source_embedding = Embedding(source, positions=added_positions(c), dropout=c.dropout)
        self.target_embedding = Embedding(target, positions=added_positions(c), dropout=c.dropout)
        self.rotary = self.target_rotary = None
        if c.positions == "rotary":
            self.rotary = self.target_rotary = Rotary(c.d_model // c.n_heads)
            if c.heads_of("decoder") != c.n_heads:
                self.target_rotary = Rotary(c.d_model // c.heads_of("decoder"))
        self.encoder = Encoder((block(c, "encoder") for _ in range(c.n_encoder_layers)), final_norm=final_norm(c))
        self.decoder = Decoder((block(c, "decoder") for _ in range(c.n_decoder_layers)), final_norm=final_norm(c))
        self.head: Part = HiddenStates()
        if c.task == "translate":
            tied_to = target if c.tied else None
            self.head = LanguageModelHead(c.d_model, c.vocab_size, tied_to=tied_to, bias=c.output_bias)

    def encode(
        self, source: Int[Tensor, "batch source"], real: Bool[Tensor, "batch source"] | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        check_ids(source, self.source_vocab_size, max_len=self.max_len, real=real)
        positions = positions_of(source, real)
        x = self.source_embedding(source, positions)
        rotation = None if self.rotary is None else self.rotary(positions)
        return self.encoder(x, padding_mask(real), rotation=rotation)

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
        x = self.target_embedding(ids, step.positions)
        rotation = None if self.target_rotary is None else self.target_rotary(step.positions)
        return self.decoder(x, step, rotation=rotation, **across)

    @torch.no_grad()
    def initialise(self) -> None:
        """Glorot's uniform for matrices, as in the authors' code; embeddings normal with 1/√d_model."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif parameter.ndim == 1:
                parameter.fill_(1.0)
            elif "embedding" in name or name.startswith("head"):
                parameter.normal_(0.0, parameter.shape[-1] ** -0.5)
            else:
                nn.init.xavier_uniform_(parameter)


def block(c: TransformerConfig, side: str) -> Block:
    n_heads = c.heads_of(side)
    return Block(
        SelfAttention(c.d_model, n_heads, dropout=c.attention_dropout),
        FeedForward(c.d_model, c.d_ff_of(side), c.activation),
        cross=CrossAttention(c.d_model, n_heads, dropout=c.attention_dropout) if side == "decoder" else None,
        norm=partial(LayerNorm, c.d_model, eps=c.norm_eps),
        wiring=WIRINGS[c.wiring],
        dropout=c.dropout,
    )


def added_positions(c: TransformerConfig) -> Part | None:
    """The positions that are added to the embedding: none if they are rotary, which turn queries and keys."""
    kind = POSITIONS.get(c.positions)
    return None if kind is None else kind(c.max_len, c.d_model)


def final_norm(c: TransformerConfig) -> LayerNorm | None:
    """Pre-norm blocks leave an unnormalised sum, which is normalised here; post-norm blocks do not."""
    return LayerNorm(c.d_model, eps=c.norm_eps) if c.wiring == "pre_norm" else None
