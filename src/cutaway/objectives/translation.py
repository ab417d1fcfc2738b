"""Translation: from `I ate an apple <eos>` to `Ich habe einen Apfel gegessen <eos>`.

Teacher forcing: the decoder reads `<sos> Ich habe …`, the true words so far, and predicts the next one at every
position. Label smoothing prevents overconfidence (Attention Is All You Need, section 5.4). A tag before the source
names the target language, so that one model can learn several directions (Johnson et al. 2017). With few pairs, R-Drop
helps (Liang et al. 2021): every pair is read twice with different dropout, and the divergence of the two predictions is
added to the loss.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.model.model import Model
from cutaway.model.upcast import upcast
from cutaway.objectives.loss import IGNORED, class_loss, token_loss
from cutaway.objectives.next_token import with_ends
from cutaway.objectives.objective import Arrays, Objective, Tensors


class Translation(Objective):
    """From `source` and `target` with their lengths, and `tag`, the id before each source; `agree` is R-Drop's α."""

    targets = {"translation": "targets"}

    def __init__(
        self, *, start_id: int, end_id: int, smoothing: float = 0.1, tagged: bool = False, agree: float = 0.0
    ) -> None:
        self.start_id, self.end_id, self.smoothing, self.tagged = start_id, end_id, smoothing, tagged
        self.agree = agree
        if agree:
            self.targets = {**self.targets, "agreement": "targets"}
            self.weights = {"agreement": agree}

    @property
    def extra(self) -> dict[str, int]:
        """How many special tokens are added to each side."""
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
        if self.agree and model.training:
            return self._of_two_readings(model, batch)
        found = token_loss(model.head, _hidden(model, batch), batch["targets"], smoothing=self.smoothing)
        # without dropout, two readings are the same
        return {"translation": found} | ({"agreement": torch.zeros_like(found)} if self.agree else {})

    def _of_two_readings(self, model: Model, batch: Tensors) -> dict[str, Tensor]:
        """The mean of the losses of both readings, and the divergence of their predictions."""
        twice = {name: torch.cat([batch[name]] * 2) for name in ("source", "source_real", "ids", "targets")}
        scores = model.head(_hidden(model, twice))
        first, second = scores.chunk(2)
        return {
            "translation": class_loss(scores, twice["targets"], smoothing=self.smoothing) / 2,
            "agreement": disagreement(first, second, batch["targets"]),
        }


def _hidden(model: Model, batch: Tensors) -> Float[Tensor, "batch target d_model"]:
    # the padding of targets is on the right, where causal attention does not look: only the source needs a mask
    hidden: Tensor = model.hidden(batch["source"], batch["ids"], source_real=batch["source_real"])
    return hidden


def disagreement(
    first: Float[Tensor, "*batch vocab"], second: Float[Tensor, "*batch vocab"], targets: Int[Tensor, "*batch"]
) -> Float[Tensor, ""]:
    """R-Drop's term, ¼ (KL(p‖q) + KL(q‖p)), summed over the targets; the loss is a mean of two readings."""
    log_p, log_q = (upcast(scores).log_softmax(-1) for scores in (first, second))
    apart = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)  # both divergences at once
    return apart.masked_fill(targets == IGNORED, 0.0).sum() / 4
