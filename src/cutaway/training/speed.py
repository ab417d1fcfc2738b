"""How fast a run is: tokens and floating-point operations per second, and the machine's peak to compare with."""

import time

import torch
from torch.utils.flop_counter import FlopCounterMode

from cutaway.families import bare
from cutaway.model.model import Model
from cutaway.objectives.objective import Objective, Tensors
from cutaway.training.feed import StepBatch


def step_flops(model: Model, objective: Objective, part: Tensors) -> int:
    """Floating-point operations of a forward and backward pass: three times those of the forward pass.

    Counted on a model without memory, so that it costs nothing and draws no random numbers.
    """
    empty = {name: torch.empty_like(tensor, device="meta") for name, tensor in part.items()}
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        objective.losses(bare(model.config), empty)
    return 3 * counter.get_total_flops()


def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of a large square matrix product, the best of a few tries."""
    n = 8192 if device.type == "cuda" else 1024
    a, b = (torch.ones(n, n, dtype=dtype, device=device) for _ in range(2))
    best = 0.0
    for _ in range(4):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        a @ b
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = max(best, 2 * n**3 / (time.perf_counter() - start))
    return best


class Lap:
    """Tokens, operations and seconds since the last look; validation and saving are not counted."""

    def __init__(self, tokens: int) -> None:
        self.start(tokens)

    def start(self, tokens: int) -> None:
        self.began, self.tokens, self.flops = time.perf_counter(), tokens, 0

    def turn(self, tokens: int) -> tuple[float, float]:
        """Tokens and operations per second; a new lap begins."""
        seconds = max(1e-9, time.perf_counter() - self.began)
        speeds = (tokens - self.tokens) / seconds, self.flops / seconds
        self.start(tokens)
        return speeds


class FlopCounter:
    """The operations of a step's batch; each shape of its parts is counted once."""

    def __init__(self, model: Model, objective: Objective) -> None:
        self.model, self.objective = model, objective
        self._known: dict[tuple[tuple[str, tuple[int, ...]], ...], int] = {}

    def __call__(self, batch: StepBatch) -> int:
        return sum(map(self._of_part, batch.parts))

    def _of_part(self, part: Tensors) -> int:
        shape = tuple((name, tuple(tensor.shape)) for name, tensor in part.items())
        if shape not in self._known:
            self._known[shape] = step_flops(self.model, self.objective, part)
        return self._known[shape]
