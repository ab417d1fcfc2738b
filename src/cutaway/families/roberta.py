"""RoBERTa (Liu et al. 2019): BERT trained for longer on more data, to predict masked tokens and nothing else.

The network is BERT's with one segment. The classifier has a layer of its own in place of BERT's pooler.
"""

from dataclasses import dataclass
from typing import ClassVar

from cutaway.families.bert import BERT, ENCODER_TASKS, BERTConfig
from cutaway.model.config import Config
from cutaway.model.heads import Pooler


@dataclass(frozen=True, kw_only=True)
class RoBERTaConfig(BERTConfig):
    family: ClassVar[str] = "roberta"
    tasks: ClassVar[tuple[str, ...]] = tuple(t for t in ENCODER_TASKS if t not in ("pretrain", "next_sentence"))

    task: str = "masked_language_model"
    vocab_size: int = 50265
    n_segments: int = 1
    norm_eps: float = 1e-5
    pad_id: int | None = 1


SIZES: dict[str, Config] = {
    "roberta-base": RoBERTaConfig(),
    "roberta-large": RoBERTaConfig(n_layers=24, d_model=1024, n_heads=16, d_ff=4096),
}


class RoBERTa(BERT):
    """`scores = model(ids, real=real)`."""

    def head_activation(self, c: BERTConfig) -> str:
        return "gelu"  # whatever the blocks use, as published

    def pooler_for(self, c: BERTConfig, dropout: float) -> Pooler:
        return Pooler(c.d_model, dropout=dropout)
