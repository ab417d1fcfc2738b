"""RoFormer (Su et al. 2021): BERT with rotary positions: attention scores depend on the distance of two tokens only."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Int
from torch import Tensor

from cutaway.families.bert import BERT, ENCODER_TASKS, BERTConfig
from cutaway.model.config import Config
from cutaway.model.heads import Pooler
from cutaway.model.positions import Rotary, Rotation


@dataclass(frozen=True, kw_only=True)
class RoFormerConfig(BERTConfig):
    family: ClassVar[str] = "roformer"
    tasks: ClassVar[tuple[str, ...]] = tuple(t for t in ENCODER_TASKS if t not in ("pretrain", "next_sentence"))

    task: str = "masked_language_model"
    vocab_size: int = 50000
    max_len: int = 1536
    pooler: bool = False


SIZES: dict[str, Config] = {
    "roformer-small": RoFormerConfig(n_layers=6, d_model=384, n_heads=6, d_ff=1536),
    "roformer-base": RoFormerConfig(),
}


class RoFormer(BERT):
    """`scores = model(ids, segments=segments, real=real)`."""

    def __init__(self, config: RoFormerConfig) -> None:
        super().__init__(config)
        self.rotary = Rotary(config.d_model // config.n_heads)

    def added_positions(self, c: BERTConfig) -> None:
        return None

    def rotation(self, positions: Int[Tensor, "#batch seq"]) -> Rotation:
        return self.rotary(positions)

    def pooler_for(self, c: BERTConfig, dropout: float) -> Pooler:
        return Pooler(c.d_model, activation=c.activation, dropout=dropout)
