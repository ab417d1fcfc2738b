"""BERT (Devlin et al. 2018): an encoder by itself, which sees the text on both sides of each token.

Learned positions and segments with a norm after their sum, post-norm, GELU. It is trained to predict masked tokens and
whether one sentence follows another, and fine-tuned for tasks on sentences, pairs of sentences and tokens.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.errors import ConfigError
from cutaway.families.parts import draw_normal, either
from cutaway.model.attention import SelfAttention
from cutaway.model.blocks import Block, post_norm
from cutaway.model.config import Config, check_heads
from cutaway.model.embeddings import Embedding, SegmentEmbedding, TokenEmbedding, check_ids, check_like
from cutaway.model.encoder import Encoder
from cutaway.model.feed_forward import FeedForward
from cutaway.model.heads import (
    ClassificationHead,
    HiddenStates,
    LanguageModelHead,
    MaskedLanguageModelHead,
    Mean,
    NextSentenceHead,
    Pooler,
    PretrainingHead,
    TaggingHead,
)
from cutaway.model.masks import padding_mask
from cutaway.model.model import Model
from cutaway.model.norms import LayerNorm
from cutaway.model.positions import Learned, Rotation, positions_of
from cutaway.model.tap import Part

ENCODER_TASKS = ("masked_language_model", "pretrain", "next_sentence", "classify", "regress", "tag", "hidden")


@dataclass(frozen=True, kw_only=True)
class BERTConfig(Config):
    family: ClassVar[str] = "bert"
    tasks: ClassVar[tuple[str, ...]] = ENCODER_TASKS

    task: str = "pretrain"
    vocab_size: int = 30522
    max_len: int = 512
    n_segments: int = 2
    n_layers: int = 12
    d_model: int = 768
    n_heads: int = 12
    d_ff: int = 3072
    activation: str = "gelu"
    norm_eps: float = 1e-12
    dropout: float = 0.1
    attention_dropout: float | None = None  # None: as `dropout`
    classifier_dropout: float | None = None  # None: as `dropout`
    tied: bool = True
    pooler: bool = True  # whether a model for the task `hidden` has the pooler
    pooling: str = "first"  # what a classifier reads: the first token through the pooler, or the mean of all

    def check(self) -> None:
        super().check()
        check_heads(self.d_model, self.n_heads)
        if self.pooling not in ("first", "mean"):
            raise ConfigError(f"pooling={self.pooling!r} is neither 'first' nor 'mean'")


SIZES: dict[str, Config] = {
    "bert-tiny": BERTConfig(n_layers=2, d_model=128, n_heads=2, d_ff=512),
    "bert-mini": BERTConfig(n_layers=4, d_model=256, n_heads=4, d_ff=1024),
    "bert-small": BERTConfig(n_layers=4, d_model=512, n_heads=8, d_ff=2048),
    "bert-medium": BERTConfig(n_layers=8, d_model=512, n_heads=8, d_ff=2048),
    "bert-base": BERTConfig(),
    "bert-large": BERTConfig(n_layers=24, d_model=1024, n_heads=16, d_ff=4096),
}


class BERT(Model):
    """`scores = model(ids, segments=segments, real=real)`."""

    def __init__(self, config: BERTConfig) -> None:
        super().__init__(config)
        c = config
        self.max_len, self.vocab_size = c.max_len, c.vocab_size
        norm = partial(LayerNorm, c.d_model, eps=c.norm_eps)
        tokens = TokenEmbedding(c.vocab_size, c.d_model)
        segments = SegmentEmbedding(c.n_segments, c.d_model)
        self.embedding = Embedding(
            tokens, positions=self.added_positions(c), segments=segments, norm=norm(), dropout=c.dropout
        )
        self.encoder = Encoder(
            Block(
                SelfAttention(c.d_model, c.n_heads, dropout=either(c.attention_dropout, c.dropout)),
                FeedForward(c.d_model, c.d_ff, c.activation),
                norm=norm,
                wiring=post_norm,
                dropout=c.dropout,
            )
            for _ in range(c.n_layers)
        )
        self.head = self.head_for(c, tokens)

    def added_positions(self, c: BERTConfig) -> Part | None:
        return Learned(c.max_len, c.d_model)

    def rotation(self, positions: Int[Tensor, "#batch seq"]) -> Rotation | None:
        return None

    def head_for(self, c: BERTConfig, tokens: TokenEmbedding) -> Part:
        match c.task:
            case "hidden":
                return HiddenStates(Pooler(c.d_model) if c.pooler else None)
            case "next_sentence":
                return NextSentenceHead(c.d_model)
            case "tag":
                return TaggingHead(c.d_model, c.n_classes or 0, dropout=either(c.classifier_dropout, c.dropout))
            case "classify" | "regress":
                return self.classifier(c)
        words = LanguageModelHead(c.d_model, c.vocab_size, tied_to=tokens if c.tied else None, bias=True)
        norm = LayerNorm(c.d_model, eps=c.norm_eps)
        masked = MaskedLanguageModelHead(c.d_model, self.head_activation(c), norm, words)
        return masked if c.task == "masked_language_model" else PretrainingHead(masked, NextSentenceHead(c.d_model))

    def head_activation(self, c: BERTConfig) -> str:
        return c.activation

    def classifier(self, c: BERTConfig) -> Part:
        dropout = either(c.classifier_dropout, c.dropout)
        pool = Mean() if c.pooling == "mean" else self.pooler_for(c, dropout)
        return ClassificationHead(pool, c.d_model, c.n_classes or 1, dropout=dropout)

    def pooler_for(self, c: BERTConfig, dropout: float) -> Pooler:
        return Pooler(c.d_model)

    def hidden(  # type: ignore[override]
        self,
        ids: Int[Tensor, "batch seq"],
        *,
        segments: Int[Tensor, "batch seq"] | None = None,
        real: Bool[Tensor, "batch seq"] | None = None,
        documents: Int[Tensor, "batch seq"] | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        check_ids(ids, self.vocab_size, max_len=self.max_len, real=real)
        check_like("documents", documents, ids, "int")
        positions = positions_of(ids, real, documents)
        x = self.embedding(ids, positions, segments)
        return self.encoder(x, padding_mask(real, documents), rotation=self.rotation(positions))

    def initialise(self) -> None:
        draw_normal(self, 0.02)
