"""How far the outputs of an exported model are from the model's own, on random inputs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.model.model import Model


@dataclass(frozen=True)
class Agreement:
    """The largest difference between the outputs of an engine and of the model."""

    engine: str
    dtype: str  # of the weights that were written
    compared: str  # what was compared: log-probabilities, logits, hidden states
    n: int  # how many numbers
    difference: float  # the largest; NaN counts as infinite
    largest: float  # magnitude of the model's numbers
    limit: float  # the largest difference allowed, as a share of `largest`
    notes: tuple[str, ...] = ()  # what a user of the folder should know

    @property
    def share(self) -> float:
        """The difference as a share of the largest number, or of 1 if that is smaller."""
        return self.difference / max(1.0, self.largest)

    @property
    def holds(self) -> bool:
        return self.share <= self.limit

    def __str__(self) -> str:
        verdict = "match" if self.holds else "do not match"
        return (
            f"{self.n:,} {self.compared} from {self.engine} {verdict} the model's: on random inputs they differ by "
            f"at most {self.difference:.1e}, {self.share:.1e} of the largest (limit {self.limit:.0e})"
        )


def compare_answers(
    engine: str, dtype: str, compared: str, pairs: list[tuple[Tensor, Tensor]], limit: float, notes: Sequence[str] = ()
) -> Agreement:
    """Compares pairs of (the model's numbers, the engine's)."""
    difference = largest = 0.0
    for ours, theirs in pairs:
        differences = (ours.double().cpu() - theirs.double()).abs().nan_to_num(nan=float("inf"))
        difference, largest = max(difference, float(differences.max())), max(largest, float(ours.abs().max()))
    n = sum(ours.numel() for ours, _ in pairs)
    return Agreement(engine, dtype, compared, n, difference, largest, limit, tuple(notes))


def random_ids(batch: int, seq: int, vocab_size: int, seed: int) -> Tensor:
    return torch.randint(vocab_size, (batch, seq), generator=torch.Generator().manual_seed(seed))


def longest_text(model: Model, most: int) -> int:
    """The number of tokens in a trial: `most`, or fewer if the model reads fewer."""
    return min(most, getattr(model, "max_len", None) or most)
