"""The Vision Transformer (Dosovitskiy et al. 2020): an image is read as a sequence of patches.

Each patch becomes a vector, a class token is put before the patches, positions are learned, the encoder is pre-norm.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.errors import ConfigError
from cutaway.families.parts import draw_normal, either
from cutaway.model.attention import SelfAttention
from cutaway.model.blocks import Block, pre_norm
from cutaway.model.config import LIMIT, Config, check_heads
from cutaway.model.embeddings import PatchEmbedding
from cutaway.model.encoder import Encoder
from cutaway.model.feed_forward import FeedForward
from cutaway.model.heads import ClassificationHead, First, HiddenStates, Pooler
from cutaway.model.model import Model
from cutaway.model.norms import LayerNorm
from cutaway.model.tap import Part


@dataclass(frozen=True, kw_only=True)
class ViTConfig(Config):
    family: ClassVar[str] = "vit"
    tasks: ClassVar[tuple[str, ...]] = ("classify", "regress", "hidden")

    task: str = "classify"
    n_classes: int | None = 1000
    image_size: int = 224
    patch_size: int = 16
    n_channels: int = 3
    n_layers: int = 12
    d_model: int = 768
    n_heads: int = 12
    d_ff: int = 3072
    activation: str = "gelu"
    norm_eps: float = 1e-12
    dropout: float = 0.0
    attention_dropout: float | None = None  # None: as `dropout`
    query_key_value_bias: bool = True
    pooler: bool = True  # whether a model for the task `hidden` has the pooler
    pixel_mean: tuple[float, ...] | None = None  # of each channel, for pixels in 0…1: subtracted from every image;
    pixel_std: tuple[float, ...] | None = None  # the result is divided by this

    def check(self) -> None:
        super().check()
        check_heads(self.d_model, self.n_heads)
        if self.image_size % self.patch_size:
            raise ConfigError(f"image_size={self.image_size} is not divisible by patch_size={self.patch_size}")
        n_patches, n_pixels = (self.image_size // self.patch_size) ** 2, self.n_channels * self.patch_size**2
        if max(n_patches, n_pixels) > LIMIT:
            raise ConfigError(f"{n_patches} patches of {n_pixels} numbers: more than {LIMIT} is no picture")
        for name in ("pixel_mean", "pixel_std"):
            values = getattr(self, name)
            if values is not None and len(values) != self.n_channels:
                raise ConfigError(f"{name} has {len(values)} numbers for n_channels={self.n_channels}")


SIZES: dict[str, Config] = {
    "vit-ti-16": ViTConfig(d_model=192, n_heads=3, d_ff=768),
    "vit-s-16": ViTConfig(d_model=384, n_heads=6, d_ff=1536),
    "vit-b-16": ViTConfig(),
    "vit-b-32": ViTConfig(patch_size=32),
    "vit-l-16": ViTConfig(n_layers=24, d_model=1024, n_heads=16, d_ff=4096),
}


class ViT(Model):
    """`scores = model(images)`."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        c = config
        norm = partial(LayerNorm, c.d_model, eps=c.norm_eps)
        self.embedding = PatchEmbedding(c.image_size, c.patch_size, c.n_channels, c.d_model, dropout=c.dropout)
        self.encoder = Encoder(
            (
                Block(
                    SelfAttention(
                        c.d_model,
                        c.n_heads,
                        bias=c.query_key_value_bias,
                        output_bias=True,
                        dropout=either(c.attention_dropout, c.dropout),
                    ),
                    FeedForward(c.d_model, c.d_ff, c.activation),
                    norm=norm,
                    wiring=pre_norm,
                    dropout=c.dropout,
                )
                for _ in range(c.n_layers)
            ),
            final_norm=norm(),
        )
        self.head: Part
        if c.task == "hidden":
            self.head = HiddenStates(Pooler(c.d_model) if c.pooler else None)
        else:
            n_classes = 1 if c.task == "regress" else c.n_classes or 0
            self.head = ClassificationHead(First(), c.d_model, n_classes)

    def hidden(  # type: ignore[override]
        self, images: Float[Tensor, "batch channel height width"]
    ) -> Float[Tensor, "batch seq d_model"]:
        return self.encoder(self.embedding(images))

    @torch.no_grad()
    def initialise(self) -> None:
        draw_normal(self, 0.02)
