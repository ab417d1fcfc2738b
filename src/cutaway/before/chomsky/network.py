"""Small models for formal languages: a decoder with different kinds of positions, and an LSTM.

The decoders are otherwise the same: pre-norm, ReLU, no dropout. Without positions a decoder still has the causal mask,
from which it can infer them (Haviv et al. 2022). The LSTM is the family of that name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.errors import ConfigError
from cutaway.families import build
from cutaway.families.parts import decoder_head, draw_normal
from cutaway.model.attention import SelfAttention
from cutaway.model.blocks import Block, pre_norm
from cutaway.model.config import Config, check_heads
from cutaway.model.decoder import Decoder
from cutaway.model.embeddings import Embedding, TokenEmbedding, check_ids
from cutaway.model.feed_forward import FeedForward
from cutaway.model.model import DecoderModel
from cutaway.model.norms import LayerNorm
from cutaway.model.positions import Learned, RelativeBias, Rotary, Sinusoidal
from cutaway.model.tap import Part

POSITIONS = ("none", "sinusoidal", "learned", "rotary", "relative")
MODELS = (*POSITIONS, "lstm")


@dataclass(frozen=True, kw_only=True)
class SmallConfig(Config):
    family: ClassVar[str] = "small"
    tasks: ClassVar[tuple[str, ...]] = ("language_model",)

    task: str = "language_model"
    vocab_size: int
    max_len: int
    positions: str
    n_layers: int = 2
    d_model: int = 64
    n_heads: int = 4
    d_ff: int = 128

    def check(self) -> None:
        super().check()
        check_heads(self.d_model, self.n_heads)
        if self.positions not in POSITIONS:
            raise ConfigError(f"positions={self.positions!r} is not one of {', '.join(POSITIONS)}")


class SmallDecoder(DecoderModel):
    """`scores = model(ids)`."""

    def __init__(self, config: SmallConfig) -> None:
        super().__init__(config)
        c = config
        self.max_len, self.vocab_size = c.max_len, c.vocab_size
        added: dict[str, Callable[[int, int], Part]] = {"sinusoidal": Sinusoidal, "learned": Learned}
        positions = added[c.positions](c.max_len, c.d_model) if c.positions in added else None
        tokens = TokenEmbedding(c.vocab_size, c.d_model, scale=c.d_model**0.5)
        self.embedding = Embedding(tokens, positions=positions)
        self.rotary = Rotary(c.d_model // c.n_heads) if c.positions == "rotary" else None
        self.bias = RelativeBias(c.n_heads, both_ways=False) if c.positions == "relative" else None
        norm = partial(LayerNorm, c.d_model)
        self.decoder = Decoder(
            (
                Block(
                    SelfAttention(c.d_model, c.n_heads),
                    FeedForward(c.d_model, c.d_ff),
                    norm=norm,
                    wiring=pre_norm,
                    dropout=0.0,
                )
                for _ in range(c.n_layers)
            ),
            final_norm=norm(),
        )
        self.head = decoder_head(c, c.d_model, c.vocab_size, None)

    def hidden(self, ids: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq d_model"]:  # type: ignore[override]
        check_ids(ids, self.vocab_size)
        step = self.step(ids, None, None, None)
        at = step.positions
        return self.decoder(
            self.embedding(ids, at),
            step,
            rotation=None if self.rotary is None else self.rotary(at),
            bias=None if self.bias is None else self.bias(at, at),
        )

    def initialise(self) -> None:
        draw_normal(self, self.embedding.tokens.matrix.shape[1] ** -0.5)


def small_model(name: str, vocab_size: int, max_len: int, seed: int) -> DecoderModel:
    """One of MODELS with new weights."""
    if name == "lstm":
        model = build("lstm", seed=seed, vocab_size=vocab_size, n_layers=2, d_model=64, dropout=0.0, tied=False)
        assert isinstance(model, DecoderModel)
        return model
    config = SmallConfig(vocab_size=vocab_size, max_len=max_len, positions=name)
    with torch.random.fork_rng([]):
        model = SmallDecoder(config)
        torch.manual_seed(seed)
        model.initialise()
    return model
