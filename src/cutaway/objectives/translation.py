"""Translation: `I ate an apple <eos>` goes in, `Ich habe einen Apfel gegessen <eos>` should come out.

Teacher forcing: the decoder reads `<sos> Ich habe …`, the true words so far, and is asked for the next one at every
position. Label smoothing keeps it from being too sure (Attention Is All You Need, section 5.4). A tag in front of the
source says which language is wanted, so that one model learns several directions (Johnson et al. 2017).
"""

from typing import ClassVar

import numpy as np
from torch import Tensor

from cutaway.model.model import Model
from cutaway.objectives.loss import IGNORED, token_loss
from cutaway.objectives.next_token import with_ends
from cutaway.objectives.objective import Arrays, Objective, Tensors


class Translation(Objective):
    """From `source` and `target` with their lengths, and `tag`, the id that stands in front of each source."""

    task: ClassVar[str] = "translate"
    targets = {"translation": "targets"}

    def __init__(self, *, start_id: int, end_id: int, smoothing: float = 0.1, tagged: bool = False) -> None:
        self.start_id, self.end_id, self.smoothing, self.tagged = start_id, end_id, smoothing, tagged

    @property
    def extra(self) -> dict[str, int]:
        """Places that a row needs besides its tokens."""
        return {"source": 1 + int(self.tagged), "target": 1}

    def prepare(self, batch: Arrays, random: np.random.Generator) -> Arrays:
        there = batch["example"] >= 0
        source, length = with_ends(batch["source"], batch["source_length"], None, self.end_id)
        if self.tagged:
            source = np.concatenate([batch["tag"][:, None], source], axis=1)
            length = np.where(there, length + 1, 0)
        target, target_length = with_ends(batch["target"], batch["target_length"], None, self.end_id)
        ids = np.concatenate([np.full((len(target), 1), self.start_id), target[:, :-1]], axis=1)
        counted = np.arange(target.shape[1]) < target_length[:, None]
        return {
            "source": source,
            "source_real": np.arange(source.shape[1]) < length[:, None],
            "ids": ids,
            "targets": np.where(counted, target, IGNORED),
        }

    def losses(self, model: Model, batch: Tensors) -> dict[str, Tensor]:
        # a target's padding stands on the right, where the decoder's tokens do not look: only the source needs a mask
        hidden = model.hidden(batch["source"], batch["ids"], source_real=batch["source_real"])
        return {"translation": token_loss(model.head, hidden, batch["targets"], smoothing=self.smoothing)}
