"""Steering: a direction in the residual stream, added during every pass.

    tap = "decoder.6.residual_after"
    calmer = Steering.between(mean_activations(model, calm, places=tap), mean_activations(model, angry, places=tap))
    with calmer.steer(model, strength=4.0):
        generate(model, tokenizer, "I think that")
    calmer.save("calm.safetensors")

(Turner et al. 2023, activation addition; Marks & Tegmark 2023, difference of means.)
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from cutaway.checkpoints.tensors import open_tensors, write_tensors
from cutaway.errors import CheckpointError, InputError
from cutaway.inside.patching.interventions import Add, intervene
from cutaway.inside.patching.place import Place, Which
from cutaway.model.model import Model
from cutaway.model.tap import tap_names


@dataclass(frozen=True, eq=False)
class Steering:
    """A vector for each tap that is steered, of a shape that broadcasts over rows and positions.

    >>> tap = "decoder.0.residual_after"
    >>> means = [mean_activations(model, x, places=tap) for x in (ids, other_ids)]
    >>> with Steering.between(*means).steer(model, strength=2.0): model(ids)
    """

    vectors: Mapping[str, Tensor]

    @classmethod
    def between(cls, toward: Mapping[str, Tensor], away: Mapping[str, Tensor]) -> "Steering":
        """The difference of two means: see `mean_activations`."""
        if set(toward) != set(away):
            raise InputError(f"means of {', '.join(toward)} and of {', '.join(away)}: take both of the same taps")
        return cls({tap: mean - away[tap] for tap, mean in toward.items()})

    @contextmanager
    def steer(self, model: Model, strength: float = 1.0, positions: Which | slice | Tensor = None) -> Iterator[None]:
        """Steers every pass inside the context; during generation, at every token that is read or generated."""
        taps = tap_names(model)
        for tap in self.vectors:
            if tap not in taps:
                raise InputError(f"this steering vector is for {tap!r}, which this model does not have")
        with intervene(model, [Add(Place(tap, None, positions), self.vectors, strength) for tap in self.vectors]):
            yield

    def save(self, path: str | Path) -> None:
        write_tensors(Path(path), self.vectors, {"format": "cutaway steering"})

    @classmethod
    def load(cls, path: str | Path) -> "Steering":
        file = open_tensors(Path(path))
        if file.metadata.get("format") != "cutaway steering":
            raise CheckpointError(f"{path} has no steering vectors: it was not written by Steering.save")
        return cls({name: file.read(name, copy=True) for name in file.names()})
