"""Captured: the forward and backward pass of a part as one CUDA graph, recorded once for each shape of batch.

A step of a small model is some hundred kernels of a few microseconds each; to launch them one by one takes longer than
to run them. A graph launches them all at once. Batches of few shapes (`data.buckets.Buckets`) need few graphs.

    run.captured = Captured(model, loss_of, torch.bfloat16)     # take_step uses it

The first batch of a shape runs as always (a compiled loss compiles then), the second one is recorded, and from then on
it is replayed. A replay draws its random numbers from wherever the generator stands, as any pass does, so that it makes
no difference to dropout, nor to a run that is resumed. A watched model is not replayed, because a replay has nothing to
show.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cutaway.errors import ConfigError
from cutaway.model.model import Model
from cutaway.model.tap import watching
from cutaway.objectives.objective import Tensors
from cutaway.training.loop import LossOf, add_gradient

Shape = tuple[tuple[str, torch.Size, torch.dtype], ...]
MOST = 64  # shapes that are recorded; each keeps a gradient in memory


@dataclass(frozen=True)
class Recording:
    """A graph, where it reads its batch, and where it leaves the terms of the loss and the gradients."""

    graph: torch.cuda.CUDAGraph
    part: Tensors
    terms: Tensor
    gradients: list[Tensor | None]


class Captured:
    """Called with a part, it does what `add_gradient` does."""

    def __init__(self, model: Model, loss_of: LossOf, autocast: torch.dtype | None = None) -> None:
        self.model, self.loss_of, self.autocast = model, loss_of, autocast
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.pool = torch.cuda.graph_pool_handle()  # shared: no two graphs are at work at the same time
        self.seen: set[Shape] = set()
        self.recordings: dict[Shape, Recording] = {}

    def __call__(self, part: Tensors) -> Tensor:
        shape: Shape = tuple((name, tensor.shape, tensor.dtype) for name, tensor in part.items())
        full = len(self.recordings) >= MOST and shape not in self.recordings
        if full or shape not in self.seen or watching(self.model):
            self.seen.add(shape)
            return add_gradient(self.model, self.loss_of, self.autocast, part)
        before = [None if p.grad is None else p.grad.clone() for p in self.trained]  # a replay writes over its own
        if shape not in self.recordings:
            self.recordings[shape] = self._record(part)
        recording = self.recordings[shape]
        for name, tensor in part.items():
            recording.part[name].copy_(tensor, non_blocking=True)
        recording.graph.replay()
        give_gradients(self.trained, recording.gradients, before)
        return recording.terms

    def _record(self, part: Tensors) -> Recording:
        """Records one pass; nothing is computed yet."""
        from cutaway.model.kernels.cuda_graphs import record

        for parameter in self.trained:
            parameter.grad = None  # so that the graph writes its gradients, and does not add to what is there
        kept = {name: tensor.clone() for name, tensor in part.items()}
        torch.cuda.synchronize()
        try:
            graph, terms = record(lambda: add_gradient(self.model, self.loss_of, self.autocast, kept), self.pool)
        except RuntimeError as error:  # something in it waits for the device, or asks for random states
            raise ConfigError(f"this loss cannot be recorded as a graph ({error}): train.capture=false") from error
        return Recording(graph, kept, terms, [parameter.grad for parameter in self.trained])


def give_gradients(
    parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None], more: Sequence[Tensor | None]
) -> None:
    """Makes these the parameters' gradients, and adds to each what there was before."""
    for parameter, gradient, other in zip(parameters, gradients, more, strict=True):
        parameter.grad = other if gradient is None else gradient
    both = [(a, b) for a, b in zip(gradients, more, strict=True) if a is not None and b is not None]
    if both:
        torch._foreach_add_([a for a, _ in both], [b for _, b in both])
