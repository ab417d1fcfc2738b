"""Llama (Touvron et al. 2023) and models with its layout: SmolLM2, Mistral, the stories of llama2.c.

A decoder by itself: rotary positions, RMSNorm before each sub-layer, SwiGLU, grouped queries, no biases.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from jaxtyping import Int
from torch import Tensor

from cutaway.errors import ConfigError
from cutaway.families.parts import DecoderOnly, decoder_head, draw_normal, either
from cutaway.model.attention import SelfAttention
from cutaway.model.blocks import Block, pre_norm
from cutaway.model.config import Config, check_heads
from cutaway.model.decoder import Decoder
from cutaway.model.embeddings import Embedding, TokenEmbedding
from cutaway.model.feed_forward import GatedFeedForward
from cutaway.model.norms import RMSNorm
from cutaway.model.positions import Rotary, Rotation, Stretch, StretchSlow, scaling_named


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(Config):
    family: ClassVar[str] = "llama"
    tasks: ClassVar[tuple[str, ...]] = ("language_model", "classify", "regress", "hidden")

    task: str = "language_model"
    vocab_size: int = 32000
    max_len: int = 2048
    n_layers: int = 32
    d_model: int = 4096
    n_heads: int = 32
    n_kv_heads: int = 32
    d_head: int | None = None  # None: d_model / n_heads
    d_ff: int = 11008
    activation: str = "silu"
    rotary_base: float = 10000.0
    rotary_scaling: str | None = None  # "linear" or "llama3", for texts longer than those of training
    rotary_scaling_numbers: tuple[float, ...] | None = None  # (factor,) or (factor, slow, fast, trained_len)
    window: int | None = None  # Mistral: each token attends to itself and the window - 1 tokens before it
    attention_bias: bool = False
    norm_eps: float = 1e-5
    dropout: float = 0.0
    attention_dropout: float | None = None  # None: as `dropout`
    tied: bool = False

    def check(self) -> None:
        super().check()
        if self.d_head is None:
            check_heads(self.d_model, self.n_heads)
        if self.n_heads % self.n_kv_heads:
            raise ConfigError(f"n_heads={self.n_heads} is not divisible by n_kv_heads={self.n_kv_heads}")
        if self.rotary_base <= 0:
            raise ConfigError(f"rotary_base={self.rotary_base} is not above 0")
        self.scaling()

    def scaling(self) -> Stretch | StretchSlow | None:
        """How rotary positions are slowed down for long texts; None if they are not."""
        if self.rotary_scaling is None:
            if self.rotary_scaling_numbers is not None:
                raise ConfigError("rotary_scaling_numbers without rotary_scaling: say which scaling they are for")
            return None
        return scaling_named(self.rotary_scaling, self.rotary_scaling_numbers or ())


SIZES: dict[str, Config] = {
    "stories15m": LlamaConfig(n_layers=6, d_model=288, n_heads=6, n_kv_heads=6, d_ff=768, max_len=256, tied=True),
    "smollm2-135m": LlamaConfig(
        vocab_size=49152,
        max_len=8192,
        n_layers=30,
        d_model=576,
        n_heads=9,
        n_kv_heads=3,
        d_ff=1536,
        rotary_base=100000.0,
        tied=True,
    ),
    "llama-7b": LlamaConfig(norm_eps=1e-6),
    "llama2-7b": LlamaConfig(max_len=4096),
    "llama3-8b": LlamaConfig(vocab_size=128256, max_len=8192, n_kv_heads=8, d_ff=14336, rotary_base=500000.0),
    "mistral-7b": LlamaConfig(max_len=32768, n_kv_heads=8, d_ff=14336, window=4096),
}


class Llama(DecoderOnly):
    """`logits = model(ids)`."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        c = config
        self.max_len, self.vocab_size, self.window = c.max_len, c.vocab_size, c.window
        norm = partial(RMSNorm, c.d_model, eps=c.norm_eps)
        tokens = TokenEmbedding(c.vocab_size, c.d_model)
        self.embedding = Embedding(tokens, dropout=c.dropout)
        self.rotary = Rotary(c.d_head or c.d_model // c.n_heads, base=c.rotary_base, scaling=c.scaling())
        self.decoder = Decoder(
            (
                Block(
                    SelfAttention(
                        c.d_model,
                        c.n_heads,
                        n_kv_heads=c.n_kv_heads,
                        d_head=c.d_head,
                        bias=c.attention_bias,
                        dropout=either(c.attention_dropout, c.dropout),
                    ),
                    GatedFeedForward(c.d_model, c.d_ff, c.activation),
                    norm=norm,
                    wiring=pre_norm,
                    dropout=c.dropout,
                )
                for _ in range(c.n_layers)
            ),
            final_norm=norm(),
        )
        self.head = decoder_head(c, c.d_model, c.vocab_size, tokens if c.tied else None)

    def rotation(self, positions: Int[Tensor, "#batch seq"]) -> Rotation:
        return self.rotary(positions)

    def initialise(self) -> None:
        draw_normal(self, 0.02)
