"""An objective: what a model is asked, and how far off its answers are.

It works in two steps. `prepare` turns a batch of raw examples into what the model reads and what should come out:
arrays, made ahead of time, with random numbers that belong to the step alone. `losses` runs the model and sums up the
loss of each term. Whoever trains divides each sum by the real targets of the whole step.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.model.model import Model
from cutaway.objectives.loss import IGNORED

Arrays = dict[str, NDArray[Any]]
Tensors = dict[str, Tensor]


class Objective:
    """What is learnt: one term of the loss, or several."""

    targets: Mapping[str, str]  # term → the name of its targets in a batch
    weights: Mapping[str, float] = {}  # of terms whose weight is not 1

    def prepare(self, batch: Arrays, random: np.random.Generator) -> Arrays:
        """The model's inputs, and the targets."""
        raise NotImplementedError

    def losses(self, model: Model, batch: Tensors) -> dict[str, Tensor]:
        """The summed loss of each term."""
        raise NotImplementedError

    def counts(self, batch: Arrays) -> dict[str, int]:
        """How many real targets each term has."""
        return {term: n_targets(batch[name]) for term, name in self.targets.items()}

    def weight(self, term: str) -> float:
        return self.weights.get(term, 1.0)


def n_targets(targets: NDArray[Any]) -> int:
    """The number of targets that are not ignored: neither IGNORED nor NaN."""
    return int((~np.isnan(targets)).sum() if targets.dtype.kind == "f" else (targets != IGNORED).sum())


def mean_loss(objective: Objective, model: Model, batch: Arrays) -> Tensor:
    """The loss of one prepared batch by itself: Σ weight · sum / targets."""
    counts = objective.counts(batch)
    sums = objective.losses(model, as_tensors(batch, model.device))
    parts = [objective.weight(term) * sums[term] / max(counts[term], 1) for term in sums]
    return torch.stack(parts).sum()


def as_tensors(batch: Arrays, device: torch.device | str = "cpu") -> Tensors:
    return {name: torch.from_numpy(values).to(device) for name, values in batch.items()}
