"""Averages of weights: an exponential moving average (EMA), or the mean of the last checkpoints, as in 2017."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from cutaway.checkpoints.weight_source import TensorSource
from cutaway.errors import CheckpointError


class MovingAverage:
    """average ← decay · average + (1 − decay) · weights, after each step that counts; with less decay at first."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        self._averages = list(self.weights.values())  # lists, because looking them up takes time in each step
        self._parameters = [parameter.detach() for parameter in model.parameters()]

    @torch.no_grad()
    def update(self, step: int, skip: Tensor) -> None:
        """Nothing changes if `skip` is 1, without waiting for a GPU."""
        decay = min(self.decay, (1 + step) / (10 + step))
        way = torch._foreach_sub(self._parameters, self._averages)
        torch._foreach_mul_(way, (1 - decay) * (1 - skip))
        torch._foreach_add_(self._averages, way)

    def load(self, source: TensorSource) -> None:
        for name, weight in self.weights.items():
            source.copy_into(name, weight)


@contextmanager
def weights_of(model: nn.Module, average: MovingAverage | None) -> Iterator[None]:
    """The model with the averaged weights, for as long as the block lasts."""
    if average is None:
        yield
        return
    own = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    put_weights(model, average.weights)
    try:
        yield
    finally:
        put_weights(model, own)


@torch.no_grad()
def put_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])


@torch.no_grad()
def average_of(sources: Sequence[TensorSource], model: nn.Module) -> None:
    """Gives the model the mean of several checkpoints' weights, one tensor at a time."""
    if not sources:
        raise CheckpointError("there are no checkpoints to average")
    for name, parameter in model.named_parameters():
        total = torch.zeros(parameter.shape, dtype=torch.float64)
        for source in sources:
            total += source.read(name)
        parameter.copy_((total / len(sources)).to(parameter.dtype))
